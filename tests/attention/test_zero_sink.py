"""The softmax with an extra zero: its weights by brute force, and a head that sees nothing."""

import pytest
import torch

from efflib.attention.zero_sink import with_zero
from efflib.models.llama import causal_mask, sdpa


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_the_weights_are_those_of_the_formula(kv_heads):
    g = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, 5, 8, generator=g, dtype=torch.float64)
    k, v = (torch.randn(2, kv_heads, 7, 8, generator=g, dtype=torch.float64) for _ in range(2))
    mask = causal_mask(5, 7)
    wide_k, wide_v = (x.repeat_interleave(4 // kv_heads, 1) for x in (k, v))
    scores = q @ wide_k.transpose(-1, -2) / 8**0.5
    exp = scores.exp() * mask
    p = exp / (1 + exp.sum(-1, keepdim=True))  # [B, H, T, S]
    torch.testing.assert_close(with_zero(sdpa)(q, k, v, mask), p @ wide_v)


def test_scores_far_below_zero_give_nothing():
    q, k = torch.full((1, 1, 1, 4), 30.0), torch.full((1, 1, 3, 4), -30.0)
    out = with_zero(sdpa)(q, k, torch.ones(1, 1, 3, 4), causal_mask(1, 3))
    assert out.abs().max() < 1e-6


def test_nothing_that_is_given_changes():
    q, k, v = (torch.ones(1, 1, 2, 4) for _ in range(3))
    mask = causal_mask(2, 2)
    with_zero(sdpa)(q, k, v, mask)
    assert mask.shape == (2, 2) and k.shape == (1, 1, 2, 4)


def test_the_name_of_a_function_is_none():
    with pytest.raises(ValueError, match="must be a function of .*got 'sdpa'"):
        with_zero("sdpa")
