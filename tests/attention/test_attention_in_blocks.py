"""Attention block by block: for every block size what it is on keys that lie side by side."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.attention.paged import paged_attention
from efflib.kernels import paged_attention as kernel

U = 2.0**-24


def scattered(lengths, block_size, heads, seed, d=16):
    """(q, k, v, table, lengths): blocks in a random order, NaN in all rows that nobody uses."""
    generator = torch.Generator().manual_seed(seed)
    H, Hkv = heads
    used = [-(-n // block_size) for n in lengths]
    order = torch.randperm(sum(used) + 2, generator=generator).tolist()
    shape = (len(order), block_size, Hkv, d)
    k, v = (torch.full(shape, math.nan) for _ in range(2))
    table = torch.full((len(lengths), max([*used, 1])), -5, dtype=torch.int32)
    side_by_side = []
    for b, n in enumerate(lengths):
        keys, values = (torch.randn(n, Hkv, d, generator=generator) * 3 for _ in range(2))
        side_by_side.append((keys, values))
        for i in range(used[b]):
            table[b, i] = block = order.pop()
            rows = slice(i * block_size, min((i + 1) * block_size, n))
            k[block, : rows.stop - rows.start] = keys[rows]
            v[block, : rows.stop - rows.start] = values[rows]
    q = torch.randn(len(lengths), H, d, generator=generator) * 3
    return (q, k, v, table, torch.tensor(lengths, dtype=torch.int32)), side_by_side


def exact(q, keys, values, scale):
    """(o, lse, sum of |s|-weighted sizes) of one sequence in float64."""
    group = q.shape[0] // keys.shape[1]
    k, v = (t.double().repeat_interleave(group, 1).transpose(0, 1) for t in (keys, values))
    s = (k @ q.double()[..., None]).squeeze(-1) * scale
    size = (k.abs() @ q.double().abs()[..., None]).squeeze(-1) * scale
    return (s.softmax(-1)[:, None] @ v).squeeze(1), s.logsumexp(-1), size.max(), v.abs().max()


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.sampled_from([1, 2, 3, 8, 16, 64]),
    st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    st.integers(0, 99),
    st.sampled_from([None, 0.1]),
)
@settings(max_examples=60)
def test_every_block_size_is_contiguous(lengths, block_size, heads, seed, scale):
    inputs, side_by_side = scattered(lengths, block_size, heads, seed)
    o, lse = paged_attention(*inputs, scale=scale)
    for b, (keys, values) in enumerate(side_by_side):
        want, want_lse, scores, most = exact(inputs[0][b], keys, values, scale or 1 / 4)
        # a score of d products is off by (d + 2) U of its terms, an exponential by as much; the
        # rest are sums of n terms, rescaled once in a block
        n = len(keys)
        off = 2 * 18 * U * float(scores) + (2 * n + 8) * U
        assert (lse[b] - want_lse).abs().max() <= off + 4 * U * want_lse.abs().max()
        assert (o[b] - want).abs().max() <= 2 * off * float(most)


@pytest.mark.parametrize("block_size", [8, 16, 64])
def test_as_the_kernel(block_size):
    inputs, _ = scattered([37, 1, 0, 70], block_size, (4, 2), 0)
    _, k, v, *_ = inputs
    inputs = (inputs[0], k.nan_to_num(0), v.nan_to_num(0), *inputs[3:])
    table = inputs[3].clamp(min=0)
    o, lse = paged_attention(*inputs)
    ok, lsek = kernel.paged_attention(*inputs[:3], table, inputs[4])
    torch.testing.assert_close(o, ok, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse, lsek, rtol=1e-5, atol=1e-5)
    assert (o[2] == 0).all() and (lse[2] == -math.inf).all()


def test_bfloat16_is_computed_in_float32():
    (q, k, v, table, lengths), _ = scattered([9, 30], 4, (2, 2), 1)
    half = [t.bfloat16() for t in (q, k, v)]
    o, lse = paged_attention(*half, table, lengths)
    want, want_lse = paged_attention(*(t.float() for t in half), table, lengths)
    assert o.dtype == torch.bfloat16 and torch.equal(o, want.bfloat16())
    assert lse.dtype == torch.float32 and torch.equal(lse, want_lse)


def test_scores_of_any_size():
    (q, k, v, table, lengths), _ = scattered([30], 4, (2, 2), 1)
    o, lse = paged_attention(q * 1e3, k, v, table, lengths)
    assert o.isfinite().all() and lse.isfinite().all()


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v, t, n: (q[0], k, v, t, n),
        lambda q, k, v, t, n: (q[:, :1], k, v, t, n),
        lambda q, k, v, t, n: (q[..., :4], k, v, t, n),
        lambda q, k, v, t, n: (q, k, v[:1], t, n),
        lambda q, k, v, t, n: (q, k, v, t[0], n),
        lambda q, k, v, t, n: (q, k, v, t, n[:1]),
        lambda q, k, v, t, n: (q, k, v, t, n + 99),
        lambda q, k, v, t, n: (q, k, v, t, n - 99),
        lambda q, k, v, t, n: (q, k, v, t + 99, n),
        lambda q, k, v, t, n: (q, k, v, t.float(), n),
    ],
)
def test_what_does_not_fit_is_named(change):
    inputs, _ = scattered([9, 30], 4, (2, 2), 1)
    with pytest.raises(ValueError, match=r"\w"):
        paged_attention(*change(*inputs))
