"""Ternary weights: scales and codes, gradients through the rounding, bytes, sums."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from efflib.models.llama import Llama, LlamaConfig
from efflib.quantization.size import model_bits
from efflib.quantization.ternary import (
    EPS,
    BitLinear,
    absmean_scale,
    bit_linear,
    fake_ternary,
    fake_tokens,
    least_error,
    pack_trits,
    product_by_additions,
    ternary_bits,
    ternary_codes,
    unpack_trits,
    with_bit_linears,
)

SEEDS = st.integers(0, 10**6)
SIZES = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def normal(seed, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@given(SEEDS, st.sampled_from(["tensor", "channel"]))
def test_scales_and_codes_in_float64(seed, granularity):
    w = normal(seed, 4, 7)
    scale = absmean_scale(w, granularity)
    mean = w.double().abs().mean(1, keepdim=True)
    mean = mean.mean(0, keepdim=True) if granularity == "tensor" else mean
    torch.testing.assert_close(scale.double(), mean, rtol=1e-6, atol=0)
    ratio = w.double() / scale.double()
    right = (ratio > 0.5).long() - (ratio < -0.5).long()  # away from ties
    assert torch.equal(ternary_codes(w, scale).long(), right)


def test_a_third_of_normal_weights_is_zero():
    w = normal(0, 1000, 1000)
    zeros = (ternary_codes(w, absmean_scale(w)) == 0).double().mean().item()
    # P(|z| < sqrt(2 / pi) / 2) = 0.3101; a million draws: deviation 0.0005
    assert abs(zeros - 0.3101) < 0.0025


def test_zeros_and_a_single_weight():
    assert absmean_scale(torch.zeros(2, 3)).item() == pytest.approx(EPS)
    assert not ternary_codes(torch.zeros(2, 3), absmean_scale(torch.zeros(2, 3))).any()
    codes, scale = least_error(torch.tensor([[-3.0]]))
    assert codes.tolist() == [[-1]] and scale.item() == 3
    codes, scale = least_error(torch.zeros(2, 3), "channel")
    assert not codes.any() and scale.tolist() == [[pytest.approx(EPS)]] * 2


@given(SEEDS)
def test_no_codes_have_less_error(seed):
    w = normal(seed, 1, 6, dtype=torch.float64)
    codes, scale = least_error(w)
    found = (w - scale.double() * codes).square().sum().item()
    for other in itertools.product((-1, 0, 1), repeat=6):
        c = torch.tensor([other], dtype=torch.float64)
        best = (w * c).sum() / c.square().sum() if c.any() else 0.0
        error = (w - best * c).square().sum().item()
        assert found <= error + 1e-6  # scale is float32


@pytest.mark.parametrize("granularity", ["tensor", "channel"])
def test_least_error_is_below_absmean(granularity):
    w = normal(1, 32, 64)
    scale = absmean_scale(w, granularity)
    codes, best = least_error(w, granularity)
    assert codes.dtype == torch.int8 and best.shape == scale.shape
    error = (w - best * codes).square().sum()
    assert error < (w - scale * ternary_codes(w, scale)).square().sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_pass_straight_through(dtype):
    layer = bit_linear(torch.nn.Linear(6, 4).to(dtype), "channel")
    x = normal(2, 5, 6, dtype=dtype).requires_grad_()
    g = normal(3, 5, 4, dtype=dtype)
    y = layer(x)
    y.backward(g)
    x_hat, w_hat = fake_tokens(x).detach(), fake_ternary(layer.weight, "channel").detach()
    assert y.dtype == dtype and torch.equal(y, torch.nn.functional.linear(x_hat, w_hat, layer.bias))
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {}
    torch.testing.assert_close(layer.weight.grad, g.T @ x_hat, **tolerance)
    torch.testing.assert_close(x.grad, g @ w_hat, **tolerance)
    torch.testing.assert_close(layer.bias.grad, g.sum(0), **tolerance)


@given(SEEDS, st.floats(1e-3, 1e4))
def test_tokens_have_their_own_grids(seed, size):
    x = size * normal(seed, 3, 9)
    x[1] = 0
    x_hat = fake_tokens(x)
    step = x.abs().amax(-1, keepdim=True) / 127
    assert ((x_hat - x).abs() <= step * (0.5 + 1e-4)).all()
    assert not x_hat[1].any()
    assert torch.equal(fake_tokens(x[2]), x_hat[2])


@given(SEEDS, st.integers(0, 17))
def test_trits_come_back(seed, length):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(-1, 2, (3, length), generator=generator, dtype=torch.int8)
    words = pack_trits(codes)
    assert words.shape == (3, -(-length // 5)) and words.dtype == torch.uint8
    assert torch.equal(unpack_trits(words, length), codes)
    for row, bytes_ in zip(codes.tolist(), words.tolist(), strict=True):
        digits = row + [0] * (-len(row) % 5)
        right = [
            sum((c + 1) * 3**i for i, c in enumerate(digits[j : j + 5]))
            for j in range(0, len(digits), 5)
        ]
        assert bytes_ == right


def test_every_byte_is_five_trits():
    words = torch.arange(243, dtype=torch.uint8)[:, None]
    codes = unpack_trits(words, 5)
    assert len({tuple(row) for row in codes.tolist()}) == 243
    assert torch.equal(pack_trits(codes), words)


def test_what_is_no_trit_is_refused():
    for codes in (torch.tensor([2]), torch.tensor([-2]), torch.tensor(1), torch.tensor([0.0])):
        with pytest.raises(ValueError):
            pack_trits(codes)
    for words, length in (
        (torch.tensor([243], dtype=torch.uint8), 5),
        (torch.tensor([0], dtype=torch.uint8), 6),
        (torch.tensor([0]), 5),
    ):
        with pytest.raises(ValueError):
            unpack_trits(words, length)
    for w in (torch.zeros(3), torch.full((2, 2), torch.nan)):
        with pytest.raises(ValueError):
            absmean_scale(w)
    with pytest.raises(ValueError):
        absmean_scale(torch.ones(2, 2), "group")


def test_a_product_by_additions():
    codes = torch.randint(-1, 2, (6, 11), dtype=torch.int8)
    x = normal(5, 2, 3, 11, dtype=torch.float64)
    right = x @ codes.double().T
    torch.testing.assert_close(product_by_additions(x, codes), right)
    codes[:, 4] = 0
    x[..., 4] = torch.inf  # not read
    assert product_by_additions(x, codes).isfinite().all()
    with pytest.raises(ValueError):
        product_by_additions(x, codes[:, :3])


def test_a_model_keeps_its_parameters_and_names():
    torch.manual_seed(0)
    model = Llama(LlamaConfig(**SIZES, tie_word_embeddings=True)).eval()
    made = with_bit_linears(model)
    kinds = [type(m) is BitLinear for m in made.modules() if isinstance(m, torch.nn.Linear)]
    assert sum(kinds) == 14 and len(kinds) == 15  # the head is left
    assert list(made.state_dict()) == list(model.state_dict())
    assert not any(isinstance(m, BitLinear) for m in model.modules())
    ids = torch.arange(6)[None]
    assert not torch.allclose(made(ids), model(ids))
    again = with_bit_linears(
        made
    )  # rounding a rounded model changes nothing but the scale's digits
    torch.testing.assert_close(again(ids), made(ids))


def test_bits_of_a_model():
    model = Llama(LlamaConfig(**SIZES, tie_word_embeddings=True))
    shapes = [(32, 16), (16, 16), (16, 16), (16, 32), (12, 16), (12, 16), (16, 12)]
    inside = 2 * sum(n * k for n, k in shapes)
    packed = 2 * sum(8 * n * -(-k // 5) for n, k in shapes)
    floats = model_bits(model) - 16 * inside
    assert ternary_bits(model) == floats + packed + 16 * 14
    assert ternary_bits(model, "channel") == floats + packed + 16 * 2 * sum(n for n, _ in shapes)
