"""FlashAttention in Triton: right to rounding, moves and computes what the paper count says."""

import pytest
import torch
from attention_reference import bounds, exact, inputs, visible, with_torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rounding import U, allowed_rms, near, rms

from efflib.kernels.attention_cost import (
    flash_attention_cost,
    keys_per_block,
    plain_attention_bytes,
)
from efflib.kernels.flash_attention import ALIGNMENTS, flash_attention
from efflib.kernels.tiled_attention import tiled_attention
from efflib.meter import Meter, guarded
from efflib.meter.figures import BlockSize, fitted_exponent

BLOCKS = {"block_m": 32, "block_n": 16}


SHAPES = [  # T, S, H, Hkv, causal
    (64, 64, 2, 2, None),
    (33, 50, 4, 2, None),
    (33, 33, 2, 2, "bottom_right"),
    (40, 70, 4, 1, "bottom_right"),
    (40, 70, 2, 2, "top_left"),
    (70, 40, 2, 2, "bottom_right"),  # 30 queries see no key
    (70, 40, 2, 2, "top_left"),
    (1, 37, 4, 2, "bottom_right"),
    (17, 1, 1, 1, None),
]


@pytest.mark.parametrize("dtype", U, ids=str)
@pytest.mark.parametrize("T, S, H, Hkv, causal", SHAPES)
def test_kernel_and_twin_against_float64_and_torch(T, S, H, Hkv, causal, dtype):
    q, k, v = inputs(T, S, H, Hkv, dtype=dtype)
    o, lse = exact(q, k, v, causal)
    seen = visible(T, S, causal)
    some = seen.any(1)
    allowed = allowed_rms(with_torch(q, k, v, seen)[:, :, some], o[:, :, some], dtype)
    o_bound, lse_bound = bounds(q, k, v, causal)
    with Meter() as m:
        kernel = flash_attention(guarded(q), guarded(k), guarded(v), causal, **BLOCKS)
    assert not m.unfilled
    for got, got_lse in (kernel, tiled_attention(q, k, v, causal, **BLOCKS)):
        assert got.dtype == dtype and got_lse.dtype == torch.float32
        assert rms(got[:, :, some], o[:, :, some]) <= allowed
        assert near(got, o, o_bound) and near(got_lse, lse, lse_bound)
        assert (got[:, :, ~some] == 0).all()


@given(
    T=st.integers(1, 40),
    S=st.integers(1, 40),
    causal=st.sampled_from(ALIGNMENTS),
    blocks=st.tuples(st.sampled_from([16, 32]), st.sampled_from([16, 32])),
    heads=st.sampled_from([(1, 1), (2, 1), (2, 2)]),
    dtype=st.sampled_from([torch.float16, torch.float32]),
)
@example(10, 40, "top_left", (32, 16), (1, 1), torch.float16)  # the last row is not the block's
@example(40, 10, "bottom_right", (16, 16), (2, 1), torch.float32)  # blocks that see no key
@settings(max_examples=20)
def test_counted_bytes_and_flops_are_those_on_paper(T, S, causal, blocks, heads, dtype):
    q, k, v = inputs(T, S, *heads, dtype=dtype)
    with Meter() as m:
        flash_attention(guarded(q), guarded(k), guarded(v), causal, None, *blocks)
    cost = flash_attention_cost(q.shape, k.shape, q.itemsize, causal, *blocks)
    reads = tuple(m.reads[name].bytes for name in ("Q", "K", "V"))
    writes = tuple(m.writes[name].bytes for name in ("Out", "LSE"))
    assert (*reads, *writes, m.flops, m.exponentials) == tuple(cost)
    assert m.bytes == cost.bytes  # and nothing else moved
    assert m.reads["Q"].reuse == m.writes["Out"].reuse == m.writes["LSE"].reuse == 1


def test_paper_counts_at_a_size_to_check_by_hand():
    shape = (1, 2, 256, 32)
    cost = flash_attention_cost(shape, shape, 2, None, 32, 32)
    assert cost.Q == 2 * 256 * 32 * 2 and cost.K == cost.V == 8 * cost.Q
    assert cost.flops == 4 * 2 * 256 * 256 * 32 and cost.exponentials == 2 * 64 * 32 * 33
    causal = flash_attention_cost(shape, shape, 2, "bottom_right", 32, 32)
    assert causal.K == cost.K * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8) // 64
    assert causal.flops == cost.flops * 36 // 64
    assert keys_per_block(5, 3, "bottom_right", 2) == [0, 2, 3]
    assert keys_per_block(5, 3, "top_left", 2) == [2, 3, 3]
    assert plain_attention_bytes(shape, shape, 2) == 2 * 2 * 2 * 256 * (2 * 32 + 2 * 256)


def test_keys_are_read_as_often_as_blocks_of_queries_see_them():
    q, k, v = inputs(64, 64, 1, 1)
    with Meter() as m:
        flash_attention(q, k, v, "bottom_right", block_m=16, block_n=16)
    assert m.counts("K")[0, 0, ::16, 0].tolist() == [4, 3, 2, 1]
    assert m.programs == 4 and m.largest_tile == 16 * 16


def test_live_memory_does_not_grow_with_the_sequence():
    peaks = []
    for n in (32, 64):
        with Meter() as m:
            flash_attention(*inputs(n, n, 1, 1), None, None, 16, 16)
        peaks.append((m.peak_live_bytes, m.largest_tile))
    assert peaks[0] == peaks[1]


def test_traffic_falls_as_one_over_on_chip_memory():
    """Blocks twice as large: half the bytes of K and V.  M: what grows with the block of queries.

    Live tiles are c + M with what does not depend on block_m in c (a tile of K and of V), so the
    law is exact in the differences.
    """
    points, live = [], {}
    for block in (16, 32, 64):
        with Meter() as m:
            flash_attention(*inputs(64, 64, 1, 1), None, None, block, 16)
        live[block] = m.peak_live_bytes
        moved = m.reads["K"].bytes + m.reads["V"].bytes
        points.append(BlockSize(str(block), block, moved))
    assert fitted_exponent(points) == pytest.approx(-1)
    assert live[64] - live[32] == 2 * (live[32] - live[16]) > 0


@pytest.mark.parametrize("kind", ["rising", "falling", "very negative", "huge", "one large"])
def test_scores_that_are_hard_for_a_running_maximum(kind):
    q, k, v = inputs(32, 64, 1, 1)
    if kind in ("rising", "falling"):
        slope = torch.linspace(-30, 30, 64) * (1 if kind == "rising" else -1)
        q, k = q.abs(), k + slope[:, None]
    elif kind == "very negative":  # exp of them is 0, also with subnormal numbers
        q, k = 30 * q.abs(), -6 * k.abs()
    elif kind == "huge":
        q, k = 60 * q, 60 * k
    else:
        k[:, :, 40] = 100 * q[:, :, 3]
    o, lse = exact(q, k, v, "bottom_right")
    assert kind != "very negative" or (lse.float().exp() == 0).all()
    o_bound, lse_bound = bounds(q, k, v, "bottom_right")
    for got, got_lse in (
        flash_attention(q, k, v, "bottom_right", **BLOCKS),
        tiled_attention(q, k, v, "bottom_right", **BLOCKS),
    ):
        assert near(got, o, o_bound) and near(got_lse, lse, lse_bound)


def test_strides_batches_and_scale():
    q, k, v = inputs(20, 24, 4, 2, B=2)
    q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))  # [B, T, H, d]
    o, lse = exact(q, k, v, None, scale=0.5)
    got, got_lse = flash_attention(q, k, v, None, 0.5, 32, 32)
    o_bound, lse_bound = bounds(q, k, v, None, 0.5)
    assert near(got, o, o_bound) and got.is_contiguous()
    assert near(got_lse, lse, lse_bound)


@pytest.mark.parametrize("change, message", [
    ({"causal": "right"}, "causal must be one of"),
    ({"block_m": 24}, "block_m must be a power of two from 16 on, got 24"),
    ({"block_n": 8}, "block_n must be a power of two from 16 on, got 8"),
    ({"k": torch.zeros(1, 3, 16, 16)}, r"need q \[B, H, T, d\].*k \(1, 3, 16, 16\)"),
    ({"q": torch.zeros(1, 3, 16, 16)}, "H a multiple of Hkv"),
    ({"q": torch.zeros(1, 2, 16, 16).half()}, "need one dtype of .*got torch.float16"),
    ({"q": torch.zeros(1, 2, 16, 32)[..., ::2]}, "last dimension must be contiguous"),
    ({"q": torch.zeros(1, 2, 0, 16)}, "none empty"),
])  # fmt: skip
def test_what_does_not_fit_is_an_error(change, message):
    q, k, v = inputs(16, 16)
    for attention in (flash_attention, tiled_attention):
        with pytest.raises(ValueError, match=message):
            attention(**{"q": q, "k": k, "v": v} | change)
