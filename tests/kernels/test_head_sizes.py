"""Heads of 80, 96 and 112, which are no power of two: tiles are larger than the head.

Results against float64, nothing read or written beyond the head (`guarded`), bytes as on paper.
"""

import attention_reference as forward
import decoding_reference as decoding
import gradient_reference as backward
import pytest
import torch
from paged_inputs import contiguous, paged
from rounding import gradient_bounds, near

from efflib.kernels.attention_autograd import attention
from efflib.kernels.attention_cost import flash_attention_cost
from efflib.kernels.backward_cost import Masks
from efflib.kernels.flash_attention import flash_attention
from efflib.kernels.flash_decoding import flash_decoding
from efflib.kernels.inference_cost import decoding_cost
from efflib.kernels.paged_attention import paged_attention
from efflib.kernels.tma_attention import tma_attention
from efflib.meter import Meter, guarded

HEADS = (80, 96, 112)


@pytest.mark.parametrize("d", (16, *HEADS))
@pytest.mark.parametrize("T, S, causal", [(20, 33, None), (20, 33, "bottom_right")])
def test_forward(d, T, S, causal):
    q, k, v = forward.inputs(T, S, 2, 1, d)
    with Meter() as m:
        got = flash_attention(guarded(q), guarded(k), guarded(v), causal, None, 16, 16)
    assert not m.unfilled
    exact = forward.exact(q, k, v, causal)
    for mine, right, bound in zip(got, exact, forward.bounds(q, k, v, causal), strict=True):
        assert near(mine, right, bound)
    cost = flash_attention_cost(q.shape, k.shape, q.itemsize, causal, 16, 16)
    assert m.bytes == cost.bytes and m.flops == cost.flops


@pytest.mark.parametrize("d", HEADS)
@pytest.mark.parametrize("splits", [1, 2])
def test_decoding(d, splits):
    q, k, v = decoding.inputs(50, 4, 2, d)
    with Meter() as m:
        got = flash_decoding(guarded(q), guarded(k), guarded(v), None, splits, 16)
    assert not m.unfilled
    exact = decoding.exact(q, k, v)
    for mine, right, bound in zip(got, exact, decoding.bounds(q, k, v), strict=True):
        assert near(mine, right, bound)
    cost = decoding_cost((4, 2), d, [50], q.itemsize, splits, 16)  # 4 blocks of keys
    assert m.bytes == cost.bytes


@pytest.mark.parametrize("d", HEADS)
def test_paged(d):
    q, k, v, table, lengths = paged([37, 1], 16, 4, 2, d)
    got, _ = paged_attention(q, k, v, table, lengths, None, 2, 16)
    for b in range(2):
        one = q[b : b + 1], *contiguous(k, v, table, lengths, b)
        assert near(got[b : b + 1], decoding.exact(*one)[0], decoding.bounds(*one)[0])


@pytest.mark.parametrize("d", HEADS)
@pytest.mark.parametrize("window", [None, 9])
def test_gradients(d, window):
    masks = Masks("bottom_right", window, 2 if window else 0)
    q, k, v, do = backward.inputs(20, 33, 2, 1, d)
    seen = backward.visible(20, 33, masks)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    o, _ = attention(*leaves, *masks[:1], None, *masks[1:], 16, 16)
    o.backward(do)
    _, _, *exact = backward.gradients(q, k, v, do, seen)
    for leaf, right, bound in zip(leaves, exact, gradient_bounds(q, k, v, do, seen), strict=True):
        assert leaf.grad.shape == leaf.shape and near(leaf.grad, right, bound)


def test_what_no_kernel_takes_is_named():
    q = torch.randn(1, 1, 16, 72)
    with pytest.raises(ValueError, match="d must be a multiple of 16, got 72"):
        flash_attention(q, q, q)
    with pytest.raises(ValueError, match="d must be a power of two from 16 on, got 96"):
        tma_attention(*[torch.randn(1, 1, 16, 96)] * 3)
