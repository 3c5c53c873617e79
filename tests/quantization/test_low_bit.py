"""Weights and inputs in few bits: grids per token, and rounding in a turned basis."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from efflib.models.llama import Llama, LlamaConfig
from efflib.quantization.linear import fake_quantize_weight
from efflib.quantization.low_bit import LowBitLinear, round_tokens, with_low_bits
from efflib.quantization.rotation import random_hadamard
from efflib.quantization.smoothquant import w8a8

SEEDS = st.integers(0, 10**6)


def linear(bias=True, n=6, k=16):
    torch.manual_seed(0)
    return torch.nn.Linear(k, n, bias=bias).requires_grad_(False)


@given(SEEDS, st.integers(2, 8))
def test_a_token_has_its_own_grid(seed, bits):
    x = torch.randn(4, 3, 16, generator=torch.Generator().manual_seed(seed))
    x[0, 0] *= 1000
    levels = 2 ** (bits - 1) - 1
    largest = x.abs().amax(-1, keepdim=True)
    rounded = round_tokens(x, bits)
    step = largest / levels
    assert ((rounded - x).abs() <= step * (0.5 + 1e-5)).all()
    codes = rounded / step
    torch.testing.assert_close(codes, codes.round(), rtol=0, atol=1e-4)
    assert torch.equal(round_tokens(x[0, 1], bits), rounded[0, 1])  # whatever the others are
    assert round_tokens(x.bfloat16(), bits).dtype == torch.bfloat16


def test_zeros_stay_zeros():
    assert not round_tokens(torch.zeros(2, 5), 4).any()


def test_what_a_linear_computes():
    layer, x = linear(), torch.randn(2, 5, 16)
    made = LowBitLinear(layer, 3, 4, 8)
    w = fake_quantize_weight(layer.weight, 3, 8)
    torch.testing.assert_close(made(x), round_tokens(x, 4) @ w.T + layer.bias)
    assert torch.equal(LowBitLinear(layer, None, None, 8)(x), layer(x))
    assert torch.equal(LowBitLinear(layer, None, 4, 8)(x), layer(round_tokens(x, 4)))


def test_in_a_turned_basis_a_large_channel_hurts_less_and_without_rounding_nothing_changes():
    """64 channels, one of 30: the largest value of a token is a fraction of it, turned."""
    layer, x = linear(bias=False, k=64), torch.randn(200, 64)
    x[:, 3] = 30.0
    q = random_hadamard(64, 0)
    exact = LowBitLinear(layer, None, None, 8, q)(x)
    torch.testing.assert_close(exact, layer(x), rtol=1e-4, atol=1e-4)

    def error(*made):
        return (LowBitLinear(layer, *made)(x) - layer(x)).norm()

    # steps: 30 / 31 as it is; turned 30 / 8 and the sum of 64 others, about 3, so 7 / 31
    assert error(None, 6, 8, q) < 0.4 * error(None, 6, 8)


def test_a_whole_model_at_8_bits_is_smoothquants_with_grids_per_token():
    torch.manual_seed(0)
    model = Llama(LlamaConfig(50, 32, 48, 2, 4, 2, 8)).eval()
    ids = torch.randint(0, 50, (2, 9))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        ours, theirs = with_low_bits(model, None, 8)(ids), w8a8(model, "token")(ids)
        exact = model(ids)
    assert 0 < (ours - exact).norm() < (theirs - exact).norm()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    turned = with_low_bits(
        model, None, None, rotations={"model.layers.0.mlp.down_proj": random_hadamard(48, 0)}
    )
    assert turned.model.layers[0].mlp.down_proj.q is not None
    assert turned.model.layers[1].mlp.down_proj.q is None
    with torch.no_grad():
        torch.testing.assert_close(turned(ids), exact, rtol=1e-4, atol=1e-5)


def test_bad_arguments_are_named():
    layer = linear()
    with pytest.raises(ValueError, match="bits must be"):
        LowBitLinear(layer, 4, 9, 8)
    with pytest.raises(ValueError, match=r"q must be \[16, 16\]"):
        LowBitLinear(layer, 4, 4, 8, random_hadamard(8, 0))
    model = torch.nn.Sequential(layer)
    with pytest.raises(ValueError, match="rotations: there is no 'o_proj'"):
        with_low_bits(model, 4, 4, rotations={"o_proj": random_hadamard(16, 0)})
