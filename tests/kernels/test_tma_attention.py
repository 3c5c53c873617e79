"""The TMA kernel: the same results and the same bytes as the readable one."""

from collections import Counter

import pytest
import torch
from attention_reference import bounds, exact, inputs, visible
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rounding import U, allowed_rms, near, rms
from test_flash_attention import SHAPES

from efflib.kernels.attention_cost import flash_attention_cost
from efflib.kernels.flash_attention import ALIGNMENTS, flash_attention
from efflib.kernels.tma_attention import compile_cases, tma_attention
from efflib.meter import Meter
from efflib.meter.compiling import compile_for_targets

pytestmark = pytest.mark.slow

BLOCKS = {"block_m": 32, "block_n": 16}


@pytest.mark.parametrize("specialized", [False, True], ids=["all-warps", "specialized"])
@pytest.mark.parametrize("dtype", U, ids=str)
@pytest.mark.parametrize("T, S, H, Hkv, causal", SHAPES)
def test_against_float64_and_the_readable_kernel(T, S, H, Hkv, causal, dtype, specialized):
    q, k, v = inputs(T, S, H, Hkv, dtype=dtype, B=2)
    o, lse = exact(q, k, v, causal)
    some = visible(T, S, causal).any(1)
    with Meter() as m:
        got, got_lse = tma_attention(q, k, v, causal, **BLOCKS, warp_specialize=specialized)
    readable, _ = flash_attention(q, k, v, causal, **BLOCKS)
    assert not m.unfilled
    assert got.dtype == dtype and got_lse.dtype == torch.float32
    o_bound, lse_bound = bounds(q, k, v, causal)
    assert near(got, o, o_bound) and near(got_lse, lse, lse_bound)
    # the same products of the same tiles; k lies transposed, and a CPU may sum in another order
    assert rms(got, o) <= allowed_rms(readable, o, dtype)
    assert (got[:, :, ~some] == 0).all()


@given(
    T=st.integers(1, 40),
    S=st.integers(1, 40),
    causal=st.sampled_from(ALIGNMENTS),
    blocks=st.tuples(st.sampled_from([16, 32]), st.sampled_from([16, 32])),
    heads=st.sampled_from([(1, 1), (2, 1), (2, 2)]),
    dtype=st.sampled_from([torch.float16, torch.float32]),
    specialized=st.booleans(),
)
@example(10, 40, "top_left", (32, 16), (1, 1), torch.float16, True)
@example(40, 10, "bottom_right", (16, 16), (2, 1), torch.float32, True)  # blocks that see no key
@settings(max_examples=20)
def test_bytes_and_flops_are_those_of_the_readable_kernel(
    T, S, causal, blocks, heads, dtype, specialized
):
    q, k, v = inputs(T, S, *heads, dtype=dtype)
    with Meter() as m:
        tma_attention(q, k, v, causal, None, *blocks, warp_specialize=specialized)
    cost = flash_attention_cost(q.shape, k.shape, q.itemsize, causal, *blocks)
    reads = tuple(m.reads[name].bytes for name in ("Q", "K", "V"))
    writes = tuple(m.writes[name].bytes for name in ("Out", "LSE"))
    assert (*reads, *writes, m.flops, m.exponentials) == tuple(cost)
    assert m.bytes == cost.bytes  # and nothing else moved


def test_the_block_that_sees_most_keys_starts_first():
    q, k, v = inputs(48, 48, 1, 1)
    with Meter(trace=True) as m:
        tma_attention(q, k, v, "bottom_right", block_m=16, block_n=16)
    reads = Counter(program for _, program, kind, _ in m.trace if kind == "read")
    tiles = [(count - 1) // 2 for _, count in sorted(reads.items())]  # one of Q, pairs of K and V
    assert tiles == [3, 2, 1]


def test_strided_tensors_as_heads_are_split():
    """[B, T, H, d] seen as [B, H, T, d], which is what a projection gives."""
    q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in inputs(20, 20, 4, 4))
    assert not q.is_contiguous()
    got, _ = tma_attention(q, k, v, "bottom_right", **BLOCKS)
    right, _ = tma_attention(*(t.contiguous() for t in (q, k, v)), "bottom_right", **BLOCKS)
    assert torch.equal(got, right)


def test_what_tma_cannot_read_is_an_error():
    q, k, v = inputs(20, 20, 2, 2, dtype=torch.float16)
    odd = torch.zeros(1, 2, 20, 20, dtype=torch.float16)[..., :16]  # rows of 40 bytes
    with pytest.raises(ValueError, match="multiples of 16 bytes: k starts at 0 of 16 and has"):
        tma_attention(q, odd, v)
    late = torch.zeros(2 * 20 * 16 + 1, dtype=torch.float16)[1:].view(1, 2, 20, 16)
    with pytest.raises(ValueError, match="v starts at 2 of 16.*use v.contiguous"):
        tma_attention(q, k, late)
    with pytest.raises(ValueError, match="causal must be one of"):
        tma_attention(q, k, v, "left")


def test_tiles_are_moved_by_tma_and_warps_are_specialized():
    """On sm_90: TMA and wgmma, no register spills; the specialized kernel moves its registers."""
    plain, specialized = (compile_for_targets(case, ["sm_90"])[0] for case in compile_cases())
    for report in (plain, specialized):
        assert report.tma and report.wgmma and not report.problems
        assert report.cp_async == 0, "a tile was loaded by computed addresses"
    assert plain.warps == 8 and "setmaxnreg" not in plain.ptx
    assert specialized.warps > 4 and "setmaxnreg" in specialized.ptx
