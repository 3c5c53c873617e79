"""Masks keep the highest scores, as many as asked, where they are compared."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from efflib.sparsity.magnitude import magnitude_mask
from efflib.sparsity.masks import apply_mask, keep, keep_n_of_m, keep_share, sparsity

SEEDS = st.integers(0, 10**6)
SHARES = st.sampled_from([0.0, 0.1, 0.29, 0.5, 0.6, 0.999, 1.0])
PATTERNS = st.sampled_from([(2, 4), (4, 8), (1, 4), (3, 4), (0, 4), (4, 4), (1, 1)])


def scores(seed, n=5, k=24, ties=False):
    s = torch.rand(n, k, generator=torch.Generator().manual_seed(seed))
    return (s * 4).floor() if ties else s


def brute_force(groups, zeros):
    """For each list: zero the lowest, one after the other, the first of equal ones first."""
    masks = []
    for group in groups:
        kept = [True] * len(group)
        for _ in range(zeros):
            kept[min((v, i) for i, v in enumerate(group) if kept[i])[1]] = False
        masks.append(kept)
    return torch.tensor(masks)


@given(SEEDS, SHARES, st.booleans())
def test_a_share_of_each_row_against_brute_force(seed, share, ties):
    s = scores(seed, ties=ties)
    assert torch.equal(keep_share(s, share, "row"), brute_force(s.tolist(), int(24 * share)))


@given(SEEDS, SHARES, st.booleans())
def test_a_share_of_the_layer_against_brute_force(seed, share, ties):
    s = scores(seed, ties=ties)
    expected = brute_force([s.flatten().tolist()], int(120 * share)).reshape(5, 24)
    assert torch.equal(keep_share(s, share, "layer"), expected)


@given(SEEDS, PATTERNS, st.booleans())
def test_n_kept_of_every_m_against_brute_force(seed, pattern, ties):
    n, m = pattern
    s = scores(seed, ties=ties)
    expected = brute_force(s.reshape(-1, m).tolist(), m - n).reshape(5, 24)
    mask = keep_n_of_m(s, n, m)
    assert torch.equal(mask, expected)
    assert (mask.reshape(-1, m).sum(1) == n).all()


@given(SEEDS, st.sampled_from([0.5, (2, 4), (4, 8)]))
def test_only_the_order_of_scores_counts(seed, pattern):
    s = scores(seed)
    for scope in ("row", "layer"):
        mask = keep(s, pattern, scope)
        assert torch.equal(mask, keep(s.exp() * 7, pattern, scope))
    rows = torch.tensor([[1e-3], [1.0], [5.0], [1e3], [2.0]])  # rows of other sizes: same row masks
    assert torch.equal(keep(s * rows, pattern, "row"), keep(s, pattern, "row"))


@given(SEEDS)
def test_what_is_kept_at_a_higher_sparsity_was_kept_at_a_lower_one(seed):
    s = scores(seed)
    for scope in ("row", "layer"):
        masks = [keep_share(s, p, scope) for p in (0.2, 0.5, 0.8)]
        assert not (masks[2] & ~masks[1]).any() and not (masks[1] & ~masks[0]).any()


def test_a_freer_pattern_keeps_a_larger_sum():
    """Every 2:4 mask is a 4:8 mask, and every 4:8 mask is a row mask of one half."""
    for seed in range(50):
        s = scores(seed)
        sums = [(s * keep(s, p, "row")).sum() for p in ((2, 4), (4, 8), 0.5)]
        sums.append((s * keep(s, 0.5, "layer")).sum())
        # sums of 60 values below 1: float32 keeps them to 60 * 60 * 2^-24 < 1e-3
        assert all(b > a - 1e-3 for a, b in zip(sums, sums[1:], strict=False))


def test_the_layers_threshold_can_empty_a_row():
    w = torch.tensor([[0.1, -0.2, 0.1, 0.2], [5.0, -6.0, 7.0, 8.0]])
    assert magnitude_mask(w, 0.5).sum(1).tolist() == [0, 4]
    assert magnitude_mask(w, 0.5, "row").int().tolist() == [[0, 1, 0, 1], [0, 0, 1, 1]]
    # of the equal 0.2 and -0.2 the first is zeroed
    assert magnitude_mask(w, (1, 4)).int().tolist() == [[0, 0, 0, 1], [0, 0, 0, 1]]


def test_one_of_four_is_kept_and_three_are_zero():
    assert sparsity(apply_mask(torch.ones(2, 8), keep_n_of_m(torch.rand(2, 8), 1, 4))) == 0.75


def test_apply_mask_gives_exact_zeros_and_leaves_its_input():
    w = torch.tensor([[-1.0, float("inf"), float("nan"), -2.0]])
    before = w.clone()
    out = apply_mask(w, torch.tensor([[False, False, False, True]]))
    assert out.tolist() == [[0, 0, 0, -2]] and not out.signbit()[0, 0]
    torch.testing.assert_close(w, before, equal_nan=True, rtol=0, atol=0)


def test_bad_input_is_named():
    s = torch.rand(2, 6)
    with pytest.raises(ValueError, match="sparsity must be from 0 to 1, got 50"):
        keep_share(s, 50, "row")
    with pytest.raises(ValueError, match="got 'column'"):
        keep_share(s, 0.5, "column")
    with pytest.raises(ValueError, match=r"\(2, 6\) do not divide into groups of 4"):
        keep(s, (2, 4))
    with pytest.raises(ValueError, match="n=5, m=4"):
        keep(s, (5, 4))
    with pytest.raises(ValueError, match="NaN"):
        keep(torch.full((2, 2), float("nan")), 0.5)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        keep(torch.ones(3), 0.5)
    with pytest.raises(ValueError, match=r"\(2, 6\), got torch.float32 \(2, 6\)"):
        apply_mask(s, s)
    with pytest.raises(ValueError, match=r"\(0, 4\)"):
        sparsity(torch.ones(0, 4))
