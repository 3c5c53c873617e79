"""Words hold what they are said to hold, in every order, and the packed linear is 4-bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.models.llama import Llama, LlamaConfig
from efflib.quantization.awq_model import awq, fold, quantized_weights, record, search_model
from efflib.quantization.linear import dequantize_weight, quantize_weight
from efflib.quantization.packing import (
    AWQ,
    PLAIN,
    W4A16Linear,
    pack,
    pack_awq,
    pack_compressed_tensors,
    stored_bytes,
    unpack,
    unpack_awq,
    w4a16,
)
from efflib.quantization.size import quantizable_linears, weight_bits


def codes_of(shape, bits=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2**bits, shape, generator=generator, dtype=torch.uint8)


def as_unsigned(words):
    return [int(w) % 2**32 for w in words.flatten()]


def test_words_by_hand():
    """Read as hexadecimal digits, a word shows its codes from the last field to the first."""
    codes = torch.tensor([1, 2, 3, 4, 5, 6, 7, 15, 9])
    assert as_unsigned(pack(codes)) == [0xF7654321, 0x9]
    assert as_unsigned(pack(codes[:8], order=AWQ)) == [0xF6427531]
    assert as_unsigned(pack(torch.tensor([1, 255]), bits=8)) == [0xFF01]
    assert as_unsigned(pack(torch.tensor([1] * 32), bits=1)) == [0xFFFFFFFF]


def test_the_awq_order_puts_neighbours_four_fields_apart():
    """So that one mask takes codes 2j and 2j + 1 into the two halves of a register."""
    codes = torch.arange(8)
    word = as_unsigned(pack(codes, order=AWQ))[0]
    pairs = [(word >> 4 * j) & 0x000F000F for j in range(4)]
    assert [(p & 15, p >> 16) for p in pairs] == [(0, 1), (2, 3), (4, 5), (6, 7)]


@settings(deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 4, 8]), st.integers(1, 70), st.data())
def test_round_trip(seed, bits, length, data):
    order = tuple(data.draw(st.permutations(range(32 // bits))))
    codes = codes_of((3, length), bits, seed)
    words = pack(codes, bits, order)
    assert words.dtype == torch.int32 and words.shape == (3, -(-length * bits // 32))
    assert torch.equal(unpack(words, length, bits, order), codes)


@pytest.mark.parametrize("order", [PLAIN, AWQ])
def test_every_word_is_the_sum_of_its_definition(order):
    codes = codes_of((5, 24))
    for word, eight in zip(as_unsigned(pack(codes, 4, order)), codes.reshape(-1, 8), strict=True):
        assert word == sum(int(eight[order[i]]) * 16**i for i in range(8))


def test_layouts_of_other_formats():
    codes = codes_of((16, 5))  # [N, K]
    words = pack_awq(codes)
    assert words.shape == (5, 2) and torch.equal(unpack_awq(words), codes)
    assert torch.equal(words[3, 1], pack(codes[8:, 3], order=AWQ)[0])
    signed = codes.to(torch.int8) - 8
    assert torch.equal(pack_compressed_tensors(signed), pack(codes))


@pytest.mark.parametrize("n, k, group", [(8, 64, 32), (7, 37, 16), (3, 5, 64), (5, 9, "channel")])
def test_the_linear_decodes_its_codes(n, k, group):
    torch.manual_seed(0)
    linear = torch.nn.Linear(k, n)
    qw = quantize_weight(linear.weight, 4, group)
    packed = W4A16Linear(qw, linear.bias)
    w_hat = packed.decode()
    # only the scale is rounded: to float16, by at most 2^-11 of itself
    torch.testing.assert_close(w_hat, dequantize_weight(qw), rtol=1.01 * 2.0**-11, atol=0)
    halved = qw._replace(scale=qw.scale.half().float())
    assert torch.equal(w_hat, dequantize_weight(halved))
    x = torch.randn(2, 3, k)
    exact = x.double() @ w_hat.double().T + linear.bias
    bound = (k + 2) * 2.0**-24 * (x.double().abs() @ w_hat.double().abs().T + 1)  # k products, bias
    assert ((packed(x) - exact).abs() <= bound).all()


def test_the_bytes_are_those_of_the_size_formula():
    packed = W4A16Linear(quantize_weight(torch.randn(512, 192), 4, 32))
    assert 8 * stored_bytes(packed) == weight_bits((512, 192), 4, 32, symmetric=False)
    assert not list(packed.parameters())
    ragged = W4A16Linear(quantize_weight(torch.randn(7, 37), 4, 16))
    # 5 words a row, 3 scales a row, 21 zero points in 3 words
    assert stored_bytes(ragged) == 4 * 7 * 5 + 2 * 7 * 3 + 4 * 3


def test_extreme_weights():
    w = torch.tensor([[0.0], [1e-12], [1000.0], [-3.0]]).expand(4, 4)
    w_hat = W4A16Linear(quantize_weight(w, 4, 4)).decode()
    assert torch.equal(w_hat[:2], torch.zeros(2, 4))
    torch.testing.assert_close(w_hat[2:], w[2:], rtol=2.0**-11, atol=0)
    with pytest.raises(ValueError, match="float16 cannot hold the scale 66666.7"):
        W4A16Linear(quantize_weight(w * 1000, 4, 4))


@pytest.mark.parametrize("clip", [False, True])
def test_a_whole_model_after_awq(clip):
    torch.manual_seed(0)
    model = Llama(LlamaConfig(50, 32, 44, 2, 4, 2, 8)).eval()
    ids = torch.randint(0, 50, (2, 9))
    calibration = record(model, ids)
    searches = search_model(model, calibration, 4, 16)
    folded = fold(model, searches)
    codes = quantized_weights(folded, calibration, searches, 4, 16, clip)
    packed, simulated = w4a16(folded, codes), awq(model, ids, 4, 16, clip)
    for name, linear in quantizable_linears(simulated).items():
        w_hat = packed.get_submodule(name).decode()
        torch.testing.assert_close(w_hat, linear.weight.detach(), rtol=1.01 * 2.0**-11, atol=0)
    with torch.no_grad():
        exact, ours, simulation = model(ids), packed(ids), simulated(ids)
    assert (ours - simulation).norm() < 0.1 * (simulation - exact).norm()
    # 32 bits before; after, 4 and 16 + 4 for each group of 16, and the last groups are short
    assert stored_bytes(packed.model.layers) < stored_bytes(model.model.layers) / 5
    fresh = w4a16(model, {n: quantize_weight(m.weight, 4, 16) for n, m in linears_of(model)})
    fresh.load_state_dict(packed.state_dict())
    with torch.no_grad():
        assert torch.equal(fresh(ids), ours)


def linears_of(model):
    return quantizable_linears(model).items()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"codes must be in \[0, 15\], got 3 to 16"):
        pack(torch.tensor([3, 16]))
    with pytest.raises(ValueError, match=r"codes must be in \[0, 15\], got -1 to 3"):
        pack(torch.tensor([3, -1]))
    with pytest.raises(ValueError, match="bits must be 1, 2, 4 or 8, .* got 3"):
        pack(torch.tensor([3]), bits=3)
    with pytest.raises(ValueError, match=r"order \(0, 1\) is no order of the 8 codes"):
        pack(torch.tensor([3]), order=(0, 1))
    with pytest.raises(ValueError, match=r"17 codes of 4 bits take 3 int32 words, got .*\(2, 2\)"):
        unpack(torch.zeros(2, 2, dtype=torch.int32), 17)
    with pytest.raises(ValueError, match=r"a multiple of 8; got codes \(12, 8\)"):
        pack_awq(torch.zeros(12, 8, dtype=torch.uint8))
    w = torch.randn(4, 8)
    for kind in (dict(bits=3), dict(symmetric=True), dict(granularity="tensor")):
        qw = quantize_weight(w, **{"bits": 4, "granularity": 4, **kind})
        with pytest.raises(ValueError, match="need 4 bits, asymmetric, groups or channels; got"):
            W4A16Linear(qw)
    with pytest.raises(ValueError, match=r"0 is \(8, 4\), its codes \(4, 8\)"):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8))
        w4a16(model, {"0": quantize_weight(w, 4, 4)})
