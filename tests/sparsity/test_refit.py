"""Weights that stay, fitted anew: against least squares of each row."""

import itertools

import pytest
import torch

from efflib.refit import refit


def drawn(seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 25, 12, generator=g)
    x[..., 1:] += x[..., :1]  # channels that go together
    w, kept = torch.randn(5, 12, generator=g), torch.rand(5, 12, generator=g) < 0.5
    return w, x * (0.1 + torch.rand(12, generator=g)), kept


def outputs_off(w, new, x):
    return (x.double() @ (w - new).double().T).square().sum((0, 1))


def test_it_is_least_squares_of_every_row():
    w, x, kept = drawn()
    new = refit(w, x, kept, steps=100)
    assert not new[~kept].any() and new.dtype == w.dtype
    rows = x.reshape(-1, 12).double()
    for i in range(len(w)):
        part = rows[:, kept[i]]
        right = torch.linalg.lstsq(part, rows @ w[i].double()).solution
        torch.testing.assert_close(new[i, kept[i]].double(), right, rtol=1e-3, atol=1e-4)


def test_every_step_is_nearer():
    w, x, kept = drawn()
    off = [outputs_off(w, refit(w, x, kept, steps), x) for steps in range(8)]
    assert torch.equal(refit(w, x, kept, 0), w * kept)
    for before, after in itertools.pairwise(off):
        assert (after <= before * 1.0001).all()
    assert (off[-1] < 0.8 * off[0]).all()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_row_of_which_all_or_nothing_stays(share):
    w, x, kept = drawn()
    kept = torch.full_like(kept, bool(share))
    assert torch.equal(refit(w, x, kept), w * kept)


def test_channels_that_are_always_0_and_other_dtypes():
    w, x, kept = drawn()
    x[..., 3] = 0.0
    before = w.clone(), x.clone(), kept.clone()
    new = refit(w.bfloat16(), x, kept)
    assert new.dtype == torch.bfloat16 and new.isfinite().all()
    assert torch.equal(new[:, 3], (w.bfloat16() * kept)[:, 3])
    assert all(torch.equal(a, b) for a, b in zip(before, (w, x, kept), strict=True))


def test_what_does_not_fit_is_refused():
    w, x, kept = drawn()
    for args in ((w, x[..., :5], kept), (w, x, kept[:2]), (w, x, kept, -1)):
        with pytest.raises(ValueError, match=r"need w|steps"):
            refit(*args)
