"""Paged attention in Triton: bit-equal to a contiguous cache, and reads only pages in use."""

import pytest
import torch
from decoding_reference import bounds, exact, inputs, with_torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from paged_inputs import contiguous, paged
from rounding import U, allowed_rms, near, rms

from efflib.kernels.flash_decoding import flash_decoding
from efflib.kernels.inference_cost import decoding_cost
from efflib.kernels.paged_attention import PAGE_SIZES, paged_attention
from efflib.kernels.split_attention import split_attention
from efflib.meter import Meter, OutOfBounds, guarded


@pytest.mark.parametrize(
    "page_size, dtype", [*zip(PAGE_SIZES, [*U, *U], strict=False), (128, torch.float32)], ids=str
)
def test_ragged_lengths_against_float64_torch_and_the_contiguous_kernel(page_size, dtype):
    q, k, v, table, lengths = paged([37, 1, 100], page_size, 4, 2, dtype=dtype)
    with Meter() as m:
        o, lse = paged_attention(q, guarded(k), guarded(v), table, lengths, None, 2, 32)
    assert not m.unfilled and o.dtype == dtype and lse.dtype == torch.float32
    wants, twins, torchs = [], [], []
    for b in range(3):
        one = q[b : b + 1], *contiguous(k, v, table, lengths, b)
        want, want_lse = exact(*one)
        o_bound, lse_bound = bounds(*one)
        wants.append(want)
        twins.append(split_attention(*one, None, 2, 32)[0])
        torchs.append(with_torch(*one))
        for got in (o[b : b + 1], twins[b]):
            assert near(got, want, o_bound)
        assert near(lse[b : b + 1], want_lse, lse_bound)
        same, same_lse = flash_decoding(*one, None, 2, 32)
        if lengths[b] > 32:  # as many splits as asked for: the same sums in the same order
            assert torch.equal(o[b : b + 1], same) and torch.equal(lse[b : b + 1], same_lse)
    want = torch.cat(wants)
    for got in (o, torch.cat(twins)):
        assert rms(got, want) <= allowed_rms(torch.cat(torchs), want, dtype)


@given(
    lengths=st.lists(st.integers(0, 70), min_size=1, max_size=3).filter(any),
    page_size=st.sampled_from(PAGE_SIZES),
    splits=st.integers(1, 4),
    block_n=st.sampled_from([16, 64]),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 1)]),
)
@example([0, 70], 16, 3, 16, (2, 2))  # a sequence without keys, and splits without
@settings(max_examples=15)
def test_counted_bytes_and_flops_are_those_on_paper(lengths, page_size, splits, block_n, heads):
    q, k, v, table, n = paged(lengths, page_size, *heads)
    with Meter() as m:
        o, lse = paged_attention(q, guarded(k), v, guarded(table), n, None, splits, block_n)
    cost = decoding_cost(heads, 16, lengths, 4, splits, block_n, paged=True)
    assert {name: t.bytes for name, t in m.reads.items()} == {
        name: count for name, count in cost.reads.items() if count
    }
    assert {name: t.bytes for name, t in m.writes.items()} == cost.writes
    assert (m.bytes, m.flops, m.exponentials) == (cost.bytes, cost.flops, cost.exponentials)
    assert m.reads["K"].reuse == m.reads["V"].reuse == 1
    for b, length in enumerate(lengths):
        if length == 0:
            assert (o[b] == 0).all() and lse[b].isneginf().all()
            continue
        one = q[b : b + 1], *contiguous(k, v, table, n, b)
        pairs = zip((o[b : b + 1], lse[b : b + 1]), exact(*one), bounds(*one), strict=True)
        assert all(near(*pair) for pair in pairs)


def test_sequences_may_share_pages():
    q, k, v, table, lengths = paged([40, 40], 16)
    table[1, :2] = table[0, :2]  # the first 32 keys
    o, _ = paged_attention(q, k, v, table, lengths, None, 2, 16)
    for b in range(2):
        one = q[b : b + 1], *contiguous(k, v, table, lengths, b)
        assert near(o[b : b + 1], exact(*one)[0], bounds(*one)[0])


def test_any_strides_of_the_pages():
    """[pages, Hkv, page_size, d], seen as [pages, page_size, Hkv, d]."""
    q, k, v, table, lengths = paged([20, 33], 8, 2, 1)
    want = paged_attention(q, k, v, table, lengths, 0.5, 1, 16)
    k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (k, v))
    got = paged_attention(q, k, v, table, lengths, 0.5, 1, 16)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


def test_a_table_that_names_no_page_is_caught_by_the_meter():
    q, k, v, table, lengths = paged([20], 16)
    table[0, 1] = len(k)
    with pytest.raises(OutOfBounds, match="dimension 0 has size"), Meter():
        paged_attention(q, k, v, table, lengths, None, 1, 16)


@pytest.mark.parametrize("change, message", [
    ({"table": torch.zeros(2, 3, dtype=torch.int32)}, r"block_table \(2, 3\)"),
    ({"lengths": torch.zeros(2, dtype=torch.int32)}, r"lengths \(2,\)"),
    ({"lengths": torch.zeros(1)}, "must be int32, got torch.int32 and torch.float32"),
    ({"table": torch.zeros(1, 6, dtype=torch.int32)[:, ::2]}, "must be contiguous in their last"),
    ({"k": torch.zeros(3, 24, 2, 16), "v": torch.zeros(3, 24, 2, 16)}, "page_size must be one of"),
    ({"q": torch.zeros(1, 3, 16)}, "H a multiple of Hkv"),
    ({"splits": 0}, "need 1 to 128 splits, got 0"),
])  # fmt: skip
def test_what_does_not_fit_is_an_error(change, message):
    q, k, v, table, lengths = paged([20], 16)
    given = {"q": q, "k": k, "v": v, "table": table, "lengths": lengths, "splits": None} | change
    with pytest.raises(ValueError, match=message):
        paged_attention(*[given[n] for n in ("q", "k", "v", "table", "lengths")], None,
                        given["splits"])  # fmt: skip


def test_inputs_of_the_contiguous_tests_fit_one_sequence_each():
    """The pages laid out in order are the contiguous cache."""
    q, k, v = inputs(48, 4, 2)
    pages = [t[0].transpose(0, 1).reshape(3, 16, 2, 16) for t in (k, v)]
    table = torch.arange(3, dtype=torch.int32)[None]
    o, lse = paged_attention(q, *pages, table, torch.tensor([48], dtype=torch.int32), None, 3, 16)
    want = flash_decoding(q, k, v, None, 3, 16)
    assert torch.equal(o, want[0]) and torch.equal(lse, want[1])
