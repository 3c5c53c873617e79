"""FlashDecoding in Triton: right to rounding for any split, and moves what the paper count says."""

import math

import pytest
import torch
from decoding_reference import bounds, exact, inputs, with_torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rounding import U, allowed_rms, near, rms

from efflib.kernels import flash_decoding as module
from efflib.kernels.flash_decoding import MAX_SPLITS, choose_splits, flash_decoding
from efflib.kernels.inference_cost import decoding_cost
from efflib.kernels.split_attention import attention_part, merge, split_attention
from efflib.meter import Meter, guarded

SHAPES = [  # S, H, Hkv, d, splits
    (64, 4, 2, 16, 1),
    (100, 4, 1, 32, 3),
    (33, 3, 3, 16, 2),
    (1, 2, 2, 16, 4),
    (129, 20, 1, 16, 8),  # 20 query heads of a key head: more than 16 rows
]


@pytest.mark.parametrize("dtype", U, ids=str)
@pytest.mark.parametrize("S, H, Hkv, d, splits", SHAPES)
def test_kernel_and_twin_against_float64_and_torch(S, H, Hkv, d, splits, dtype):
    q, k, v = inputs(S, H, Hkv, d, dtype, B=2)
    o, lse = exact(q, k, v)
    allowed = allowed_rms(with_torch(q, k, v), o, dtype)
    o_bound, lse_bound = bounds(q, k, v)
    with Meter() as m:
        kernel = flash_decoding(guarded(q), guarded(k), guarded(v), None, splits, 16)
    assert not m.unfilled
    for got, got_lse in (kernel, split_attention(q, k, v, None, splits, 16)):
        assert got.dtype == dtype and got_lse.dtype == torch.float32
        assert rms(got, o) <= allowed
        assert near(got, o, o_bound) and near(got_lse, lse, lse_bound)


@given(
    S=st.integers(1, 100),
    splits=st.integers(1, 6),
    block_n=st.sampled_from([16, 32]),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    dtype=st.sampled_from([torch.float16, torch.float32]),
)
@example(33, 6, 16, (4, 2), torch.float16)  # 3 blocks: 3 splits are made
@example(80, 4, 16, (1, 1), torch.float32)  # 5 blocks by 4: 2 2 1, so 3 splits
@settings(max_examples=15)
def test_counted_bytes_and_flops_are_those_on_paper(S, splits, block_n, heads, dtype):
    q, k, v = inputs(S, *heads, dtype=dtype, B=2)
    with Meter() as m:
        o, lse = flash_decoding(guarded(q), guarded(k), guarded(v), None, splits, block_n)
    blocks = math.ceil(S / block_n)
    made = math.ceil(blocks / math.ceil(blocks / splits))
    cost = decoding_cost(heads, 16, [S, S], q.itemsize, made, block_n)
    assert {name: t.bytes for name, t in m.reads.items()} == cost.reads
    assert {name: t.bytes for name, t in m.writes.items()} == cost.writes
    assert (m.bytes, m.flops, m.exponentials) == (cost.bytes, cost.flops, cost.exponentials)
    # the cache is read once, whatever the splits and the query heads that share a key head
    assert m.reads["K"].bytes == k.numel() * k.itemsize and m.reads["K"].reuse == 1
    assert m.reads["V"].reuse == 1 and (m.counts("K") == 1).all()
    pairs = zip((o, lse), exact(q, k, v), bounds(q, k, v), strict=True)
    assert all(near(*one) for one in pairs)


def test_paper_counts_at_a_size_to_check_by_hand():
    cost = decoding_cost((8, 2), 64, [100], 2, 4, 32)
    assert cost.reads == {
        "Q": 4 * 8 * 64 * 2, "K": 2 * 100 * 64 * 2, "V": 2 * 100 * 64 * 2,
        "Part": 4 * 8 * 64 * 4, "PartLSE": 4 * 8 * 4,
    }  # fmt: skip
    assert cost.writes["Out"] == 8 * 64 * 2 and cost.writes["LSE"] == 8 * 4
    assert cost.flops == 4 * 16 * 32 * 64 * 2 * 4  # two heads, four blocks, 16 rows
    assert cost.exponentials == 2 * 4 * 16 * 33 + 8 * 4
    one = decoding_cost((8, 2), 64, [100], 2, 1, 32)
    assert one.writes == {"Part": 8 * 64 * 2, "PartLSE": 8 * 4} and "Part" not in one.reads


@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(sum),
    seed=st.integers(0, 99),
)
@settings(max_examples=40)
def test_parts_of_any_lengths_merge_to_the_whole(lengths, seed):
    """Also parts without a key, and in two steps: merging is associative."""
    q, k, v = (t.double() for t in inputs(sum(lengths), seed=seed))
    parts = [
        attention_part(q, *part, scale=0.25)
        for part in zip(k.split(lengths, dim=2), v.split(lengths, dim=2), strict=True)
    ]
    o, lse = (torch.stack(x, dim=2) for x in zip(*parts, strict=True))
    want, want_lse = exact(q, k, v, 0.25)
    got = merge(o, lse)
    half = len(lengths) // 2
    first, rest = merge(o[:, :, :half], lse[:, :, :half]), merge(o[:, :, half:], lse[:, :, half:])
    again = merge(*(torch.stack(x, dim=2) for x in zip(first, rest, strict=True)))
    o_bound, lse_bound = bounds(*(t.float() for t in (q, k, v)), 0.25)  # parts are float32
    for o, lse in (got, again):
        assert near(o, want, o_bound) and near(lse, want_lse, lse_bound)


@pytest.mark.parametrize("kind", ["rising", "very negative", "huge", "one large"])
def test_scores_that_are_hard_for_a_running_maximum(kind):
    """Parts whose lse differ by hundreds, and weights that vanish."""
    q, k, v = inputs(96, 2, 1)
    if kind == "rising":
        q, k = q.abs(), k + torch.linspace(-30, 30, 96)[:, None]
    elif kind == "very negative":  # exp of them is 0, also with subnormal numbers
        q, k = 30 * q.abs(), -6 * k.abs()
    elif kind == "huge":
        q, k = 60 * q, 60 * k
    else:
        k[:, :, 40] = 100 * q[:, :1]
    o, lse = exact(q, k, v)
    assert kind != "very negative" or (lse.float().exp() == 0).all()
    o_bound, lse_bound = bounds(q, k, v)
    for got, got_lse in (
        flash_decoding(q, k, v, None, 3, 32),
        split_attention(q, k, v, None, 3, 32),
    ):
        assert near(got, o, o_bound) and near(got_lse, lse, lse_bound)


def rule_of_flash_attention(programs, sms, blocks, most):
    """num_splits_heuristic of FlashAttention 2, statement by statement."""
    if programs >= 0.8 * sms:
        return 1
    most = min(most, sms, blocks)
    best, efficiency = 0.0, []

    def eligible(n):
        return n == 1 or math.ceil(blocks / n) != math.ceil(blocks / (n - 1))

    for n in range(1, most + 1):
        waves = programs * n / sms
        filled = waves / math.ceil(waves) if eligible(n) else 0.0
        best = max(best, filled)
        efficiency.append(filled)
    for n in range(1, most + 1):
        if eligible(n) and efficiency[n - 1] >= 0.85 * best:
            return n
    return 1


@given(st.integers(1, 300), st.integers(1, 2000), st.integers(1, 200))
def test_splits_are_chosen_by_the_published_rule(programs, blocks, sms):
    splits = choose_splits(programs, blocks, sms)
    assert splits == rule_of_flash_attention(programs, sms, blocks, MAX_SPLITS)
    assert splits * (math.ceil(blocks / splits)) >= blocks
    assert (splits - 1) * math.ceil(blocks / splits) < blocks  # no empty split


def test_splits_fill_a_gpu_and_stop_there(monkeypatch):
    # batch 1, 8 key heads, 128k keys in blocks of 64: 33 splits would make two full waves, and
    # 15 x 8 = 120 of 132 programs fill one 0.91 times as well (14 x 8: 0.848, not enough)
    assert choose_splits(8, 2048, 132) == 15
    assert choose_splits(106, 2048, 132) == 1 and choose_splits(105, 2048, 132) > 1
    assert choose_splits(1, 3, 132) == 3  # not more than blocks
    q, k, v = inputs(64)
    for sms, programs in ((1, 2), (4, 4)):
        monkeypatch.setattr(module, "sm_count", lambda device, sms=sms: sms)
        with Meter() as m:
            flash_decoding(q, k, v, block_n=16)
        assert m.counts("Part", "write").shape[2] == programs // 2
    monkeypatch.undo()
    assert module.sm_count(q.device) == 1


def test_strides_and_scale():
    q, k, v = inputs(24, 4, 2, B=2)
    k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (k, v))  # [B, S, Hkv, d]
    q = q.transpose(0, 1).contiguous().transpose(0, 1)
    o, lse = exact(q, k, v, scale=0.5)
    got, got_lse = flash_decoding(q, k, v, 0.5, 2, 16)
    o_bound, lse_bound = bounds(q, k, v, 0.5)
    assert near(got, o, o_bound) and got.is_contiguous()
    assert near(got_lse, lse, lse_bound)


@pytest.mark.parametrize("change, message", [
    ({"block_n": 24}, "block_n must be a power of two from 16 on, got 24"),
    ({"splits": 129}, "need 1 to 128 splits and one B: 129"),
    ({"splits": 0}, "need 1 to 128 splits"),
    ({"q": torch.zeros(2, 2, 16)}, "splits and one B: 1, 2, 1"),
    ({"q": torch.zeros(1, 3, 16)}, r"H a multiple of Hkv: q \(1, 3, 16\)"),
    ({"q": torch.zeros(1, 2, 1, 16)}, r"need q \[B, H, d\]"),
    ({"q": torch.zeros(1, 2, 16).half()}, "need one dtype of .*got torch.float16"),
    ({"q": torch.zeros(1, 2, 32)[..., ::2]}, "last dimension must be contiguous"),
    ({"k": torch.zeros(1, 2, 0, 16), "v": torch.zeros(1, 2, 0, 16)}, "need q"),
    ({name: torch.zeros(1, 2, *rest, 12) for name, rest in
      {"q": (), "k": (16,), "v": (16,)}.items()}, "d must be a multiple of 16, got 12"),
])  # fmt: skip
def test_what_does_not_fit_is_an_error(change, message):
    q, k, v = inputs(16)
    with pytest.raises(ValueError, match=message):
        flash_decoding(**{"q": q, "k": k, "v": v} | change)
