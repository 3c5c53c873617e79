"""Experts woken: the formula against all outcomes; bytes between devices by hand and by a walk."""

from itertools import combinations, product

import pytest
import torch

from efflib.moe.traffic import sent, touched, woken


@pytest.mark.parametrize(("count", "k", "batch"), [(4, 2, 3), (5, 1, 3), (3, 3, 2), (6, 2, 2)])
def test_woken_is_the_mean_over_all_outcomes(count, k, batch):
    draws = list(product(combinations(range(count), k), repeat=batch))
    mean = sum(touched(torch.tensor(d)) for d in draws) / len(draws)
    assert woken(count, k, batch) == pytest.approx(mean)


def test_limits():
    assert woken(8, 2, 0) == 0 and woken(8, 2, 1) == 2 and woken(8, 2, 200) == pytest.approx(8)
    for bad in ((0, 1, 1), (4, 5, 1), (4, 0, 1), (4, 2, -1)):
        with pytest.raises(ValueError):
            woken(*bad)


def test_uneven_chances_wake_fewer():
    p = torch.tensor([0.9, 0.6, 0.3, 0.2])  # sum 2
    for batch in (2, 5, 20):
        assert (1 - (1 - p) ** batch).sum() < woken(4, 2, batch)


def test_sent_by_hand():
    experts = torch.tensor([[0, 1], [2, 3], [0, 3]])
    home, place = torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1, 1])
    once = sent(experts, home, place, 2, 10)
    assert once.tolist() == [[0, 10], [10, 0]]  # token 1 once; token 2's expert 3 is at home
    each = sent(experts, home, place, 2, 10, once=False)
    assert each.tolist() == [[0, 20], [10, 0]]


def test_sent_against_a_walk():
    g = torch.Generator().manual_seed(0)
    experts = torch.rand(50, 8, generator=g).argsort(-1)[:, :3]
    home, place = torch.randint(4, (50,), generator=g), torch.randint(4, (8,), generator=g)
    for once in (True, False):
        right = torch.zeros(4, 4, dtype=torch.int64)
        for t in range(50):
            to = [int(place[e]) for e in experts[t]]
            for q in set(to) if once else to:
                right[home[t], q] += 6 * (q != home[t])
        assert torch.equal(sent(experts, home, place, 4, 6, once), right)
    assert not sent(experts, home * 0, place * 0, 1, 6).any()
    with pytest.raises(ValueError, match="home"):
        sent(experts, home, place, 2, 6)
