"""Windowed attention and the backward pass: right to rounding, and what the paper count says."""

import os
import subprocess
import sys

import pytest
import torch
from gradient_reference import gradients, inputs, torch_gradients, visible
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rounding import U, allowed_rms, attention_bounds, gradient_bounds, near, rms

from efflib.kernels.attention_autograd import attention
from efflib.kernels.attention_backward import attention_backward
from efflib.kernels.backward_cost import (
    Masks,
    Walk,
    attention_backward_cost,
    walk_of_keys,
    walk_of_queries,
    windowed_attention_cost,
)
from efflib.kernels.flash_attention import ALIGNMENTS, flash_attention
from efflib.kernels.tiled_gradients import tiled_attention_backward, tiled_windowed_attention
from efflib.kernels.windowed_attention import windowed_attention
from efflib.meter import Meter, guarded

BLOCKS = {"block_m": 32, "block_n": 16}
BACKWARD_BLOCKS = {"block": 32, "step": 16}


SHAPES = [  # T, S, H, Hkv, masks
    (33, 50, 4, 2, Masks()),
    (17, 1, 1, 1, Masks()),
    (33, 33, 2, 2, Masks("bottom_right")),
    (20, 40, 4, 1, Masks("bottom_right")),
    (20, 40, 2, 2, Masks("top_left")),  # keys that no query sees
    (50, 30, 2, 1, Masks("bottom_right")),  # 20 queries see no key
    (1, 37, 4, 2, Masks("bottom_right")),
    (50, 50, 2, 1, Masks("bottom_right", 7, 3)),
    (40, 60, 2, 2, Masks("bottom_right", 20)),
    (60, 20, 2, 2, Masks("top_left", 5, 2)),  # late queries see the sinks only
    (60, 20, 2, 2, Masks("top_left", 5)),  # and here nothing
    (20, 20, 1, 1, Masks("top_left", 1)),
    (30, 20, 1, 1, Masks("bottom_right", 4, 50)),  # more sinks than keys: causal
]


def forward(q, k, v, masks):
    if masks.window is None:
        return flash_attention(q, k, v, masks.causal, **BLOCKS)
    return windowed_attention(q, k, v, masks.window, masks.sinks, masks.causal, **BLOCKS)


@pytest.mark.parametrize("dtype", U, ids=str)
@pytest.mark.parametrize("T, S, H, Hkv, masks", SHAPES)
def test_kernels_and_twins_against_float64_and_torch(T, S, H, Hkv, masks, dtype):
    q, k, v, do = inputs(T, S, H, Hkv, dtype=dtype)
    seen = visible(T, S, masks)
    o, lse, *exact = gradients(q, k, v, do, seen)
    torch_o, *torch_grads = torch_gradients(q, k, v, do, seen)
    with Meter() as m:
        got_o, got_lse = forward(guarded(q), guarded(k), guarded(v), masks)
        given = guarded(q), guarded(k), guarded(v), got_o, got_lse, guarded(do), None
        options = masks.causal, None, masks.window, masks.sinks
        kernel = attention_backward(*given, *options, **BACKWARD_BLOCKS)
    assert not m.unfilled
    o_bound, lse_bound = attention_bounds(q, k, v, seen)
    allowed = allowed_rms(torch_o, o, dtype)
    assert got_lse.dtype == torch.float32 and near(got_lse, lse, lse_bound)
    assert rms(got_o, o) <= allowed and near(got_o, o, o_bound)
    assert (got_o[:, :, ~seen.any(1)] == 0).all()
    if masks.window is not None:
        twin_o, twin_lse = tiled_windowed_attention(
            q, k, v, masks.window, masks.sinks, masks.causal, **BLOCKS
        )
        assert rms(twin_o, o) <= allowed and near(twin_o, o, o_bound)
        assert near(twin_lse, lse, lse_bound)
    twin = tiled_attention_backward(q, k, v, got_o, got_lse, do, None, *options, **BLOCKS)
    allowed = [allowed_rms(x, right, dtype) for x, right in zip(torch_grads, exact, strict=True)]
    if seen.sum(1).max() == 1:  # dq and dk are 0, a difference of equal numbers: bounds tell
        allowed[:2] = torch.inf, torch.inf
    bounds = gradient_bounds(q, k, v, do, seen)
    for results in (kernel, twin):
        for got, right, most, bound in zip(results, exact, allowed, bounds, strict=True):
            assert got.dtype == dtype and got.shape == right.shape
            assert rms(got, right) <= most and near(got, right, bound)
    dq, dk, dv = kernel
    assert (dq[:, :, ~seen.any(1)] == 0).all()
    assert (dk[:, :, ~seen.any(0)] == 0).all() and (dv[:, :, ~seen.any(0)] == 0).all()


masks_drawn = st.one_of(
    st.sampled_from(ALIGNMENTS).map(Masks),
    st.tuples(st.sampled_from(ALIGNMENTS[1:]), st.integers(1, 40), st.integers(0, 20)).map(
        lambda drawn: Masks(*drawn)
    ),
)


@given(
    T=st.integers(1, 40),
    S=st.integers(1, 40),
    masks=masks_drawn,
    blocks=st.tuples(st.sampled_from([16, 32]), st.sampled_from([16, 32])),
    heads=st.sampled_from([(1, 1), (2, 1), (2, 2)]),
)
@example(40, 10, Masks("top_left", 3, 2), (16, 16), (1, 1))  # blocks of queries beyond all keys
@example(10, 40, Masks("top_left", 3, 0), (16, 16), (1, 1))  # blocks of keys that none sees
@settings(max_examples=15)
def test_counted_bytes_and_flops_are_those_on_paper(T, S, masks, blocks, heads):
    q, k, v, do = inputs(T, S, *heads)
    seen = visible(T, S, masks)
    o, lse, *exact = gradients(q, k, v, do, seen)
    shapes = q.shape, k.shape, q.itemsize, masks, *blocks
    costs = {"backward": attention_backward_cost(*shapes)}
    meters = {"backward": Meter()}
    if masks.window is not None:
        with Meter() as m:
            windowed_attention(q, k, v, masks.window, masks.sinks, masks.causal, None, *blocks)
        costs["forward"], meters["forward"] = windowed_attention_cost(*shapes), m
    with meters["backward"]:
        got = attention_backward(q, k, v, o.float(), lse.float(), do, None, masks.causal, None,
                                 masks.window, masks.sinks, *blocks)  # fmt: skip
    for name, cost in costs.items():
        m = meters[name]
        assert {n: t.bytes for n, t in m.reads.items() if t.bytes} == drop_zeros(cost.reads)
        assert {n: t.bytes for n, t in m.writes.items() if t.bytes} == drop_zeros(cost.writes)
        assert (m.flops, m.exponentials) == (cost.flops, cost.exponentials)
    for mine, right, bound in zip(got, exact, gradient_bounds(q, k, v, do, seen), strict=True):
        assert near(mine, right, bound)


def drop_zeros(counts):
    return {name: n for name, n in counts.items() if n}


def test_paper_counts_at_a_size_to_check_by_hand():
    masks = Masks("bottom_right", window=4, sinks=2)
    # rows 0-3 see 0..3; rows 4-7: start 1, one sink and 1..7; rows 8-11: 2 sinks and 5..11
    assert walk_of_queries(12, 12, masks, 4, 4) == Walk(4 + (1 + 7) + (2 + 7), 1 + 3 + 3)
    # keys 0-3 hold sinks: rows 0..11; keys 4-7: rows 4..10; keys 8-11: rows 8..11
    assert walk_of_keys(12, 12, masks, 4, 4) == Walk(12 + 7 + 4, 3 + 2 + 1)
    assert walk_of_keys(12, 12, Masks(), 4, 4) == Walk(36, 9)
    shape = (1, 2, 64, 16)
    full = attention_backward_cost(shape, shape, 2, Masks(), 16, 16)
    assert full.flops == 2 * 14 * 64 * 64 * 16  # 3.5 times the forward pass
    assert full.writes["DQ"] == full.writes["DK"] == 2 * 64 * 16 * 2


def test_a_window_moves_bytes_that_grow_with_the_sequence_and_not_with_its_square():
    moved = []
    for n in (64, 128):
        q, k, v, _ = inputs(n, n, 1, 1)
        with Meter() as m:
            windowed_attention(q, k, v, 16, 4, block_m=16, block_n=16)
        moved.append(m.reads["K"].bytes)
    q_block = (16 + 16 - 1 + 4) * 16 * 4  # keys of a block of queries, once they are all there
    assert moved[1] - moved[0] == 4 * q_block


def test_a_gradient_of_lse_is_one_of_the_scores():
    q, k, v, do = inputs(20, 24, 2, 1)
    dlse = torch.randn(1, 2, 20, generator=torch.Generator().manual_seed(1))
    seen = visible(20, 24, Masks("bottom_right"))
    o, lse, *exact = gradients(q, k, v, do, seen, dlse)
    given = q, k, v, o.float(), lse.float(), do, dlse, "bottom_right"
    kernel = attention_backward(*given, **BACKWARD_BLOCKS)
    bounds = gradient_bounds(q, k, v, do, seen, dlse)
    for results in (kernel, tiled_attention_backward(*given, **BLOCKS)):
        for got, right, bound in zip(results, exact, bounds, strict=True):
            assert near(got, right, bound)


@pytest.mark.parametrize("masks", [Masks("top_left"), Masks("bottom_right", 6, 2)])
def test_autograd_uses_the_kernels(masks):
    q, k, v, do = inputs(20, 24, 4, 2)
    seen = visible(20, 24, masks)
    _, lse, *exact = gradients(q, k, v, do, seen)
    # [B, T, H, d] transposed, as models have it, and a gradient that is expanded
    leaves = [t.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for t in (q, k, v)]
    o, got_lse = attention(*leaves, masks.causal, None, masks.window, masks.sinks, **BLOCKS)
    grads, bounds = torch.autograd.grad(o, leaves, do), gradient_bounds(q, k, v, do, seen)
    assert all(near(*one) for one in zip(grads, exact, bounds, strict=True))
    o, got_lse = attention(*leaves, masks.causal, None, masks.window, masks.sinks, **BLOCKS)
    ones = torch.ones_like(lse)
    _, _, *exact = gradients(q, k, v, torch.ones_like(do), seen, ones)
    (o.sum() + got_lse.sum()).backward()
    bounds = gradient_bounds(q, k, v, torch.ones_like(do), seen, ones)
    grads = [leaf.grad for leaf in leaves]
    assert all(near(*one) for one in zip(grads, exact, bounds, strict=True))


def test_ops_are_registered_as_torch_asks():
    q, k, v, do = inputs(5, 6, 2, 1)
    q.requires_grad_()
    options = "bottom_right", None, None, 0, 16, 16
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.efflib.attention, (q, k, v, *options), test_utils=tests)
    o, lse = flash_attention(q.detach(), k, v, "bottom_right", None, 16, 16)
    given = (q.detach(), k, v, o, lse, do, torch.zeros_like(lse), *options[:4])
    torch.library.opcheck(torch.ops.efflib.attention_backward, given, test_utils=tests)


@pytest.mark.parametrize("change, message", [
    ({"window": 0}, "need window >= 1.*window 0"),
    ({"window": 3, "sinks": -1}, "sinks -1"),
    ({"window": 3, "causal": None}, "causal None"),
    ({"sinks": 2}, "sinks need a window"),
    ({"block_m": 24}, "block_m must be a power of two"),
])  # fmt: skip
def test_what_does_not_fit_is_an_error(change, message):
    q, k, v, _ = inputs(16, 16)
    with pytest.raises(ValueError, match=message):
        attention(q, k, v, **{"causal": "bottom_right"} | change)
    with pytest.raises(ValueError, match=r"need o and do \(1, 2, 16, 16\)"):
        attention_backward(q, k, v, q, torch.zeros(1, 2, 16), q[:, :1])


def test_a_cpu_tensor_without_the_interpreter_is_told_what_to_do():
    code = (
        "import torch; torch.cuda.is_available = lambda: True\n"
        "from efflib.kernels.attention_autograd import attention\n"
        "q = torch.zeros(1, 1, 16, 16)\n"
        "for options in ({}, {'causal': 'top_left', 'window': 3}):\n"
        "    try: attention(q, q, q, **options)\n"
        "    except RuntimeError as error: print(error)\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    assert "flash_attention_kernel was compiled for a GPU and got a tensor on the CPU" in lines[0]
    assert "windowed_attention_kernel was compiled" in lines[1] and "efflib.meter" in lines[1]
