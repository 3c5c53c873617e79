"""Chinchilla: the table's own arithmetic, the law's best against a grid, and the cost of use."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efflib.models import scaling as s

LAWS = [s.HOFFMANN, s.HOFFMANN_TEX, s.BESIROGLU]
budgets = st.floats(1e15, 1e28)


@pytest.mark.parametrize("row", s.TABLE, ids=lambda row: f"{row.parameters:.0e}")
def test_the_tables_columns_are_those_of_one_formula(row):
    """6 N D and Gopher's FLOPs, to the digits that are printed."""
    assert s.training_flops(row.parameters, row.tokens) == pytest.approx(row.flops, rel=0.05)
    assert row.flops / s.GOPHER == pytest.approx(row.gopher, rel=0.03)
    assert 19.9 < row.tokens / row.parameters < 22.5


@given(budgets, st.floats(0.1, 1e4))
def test_the_rule_spends_the_budget_at_its_ratio(compute, ratio):
    found = s.by_rule(compute, ratio)
    assert found.training == pytest.approx(compute) and found.ratio == pytest.approx(ratio)


def test_the_rule_by_hand():
    assert s.by_rule(120e20) == pytest.approx((1e10, 2e11))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("compute", [1e18, 5.76e23, 1e27])
def test_no_other_size_has_a_lower_loss(law, compute):
    best = s.by_law(compute, law)
    assert best.training == pytest.approx(compute)
    grid = best.parameters * np.exp(np.linspace(-2, 2, 401))
    losses = [law.loss(n, compute / 6 / n) for n in grid]
    assert law.loss(*best) <= min(losses) + 1e-12
    assert abs(int(np.argmin(losses)) - 200) <= 1


def test_two_fits_of_the_same_points_give_other_ratios():
    printed, digits, again = (s.by_law(s.GOPHER, law).ratio for law in LAWS)
    assert again < digits < printed
    assert 15 < again < 30 < 60 < printed


@pytest.mark.parametrize("law", LAWS)
def test_without_use_the_cheapest_is_the_best_of_its_budget(law):
    best = s.by_law(1e22, law)
    found = s.cheapest(law.loss(*best), 0, law)
    assert found == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("used", [1e11, 1e13])
def test_use_makes_it_smaller_and_longer_trained(law, used):
    best = s.by_law(1e22, law)
    loss = law.loss(*best)
    found = s.cheapest(loss, used, law)
    assert found.parameters < best.parameters and found.tokens > best.tokens
    assert law.loss(*found) == pytest.approx(loss, rel=1e-9)
    cost = s.lifetime_flops(found, used)
    for n in found.parameters * np.array([0.8, 0.99, 1.01, 1.25]):
        other = s.Budget(n, s.tokens_for(loss, n, law))
        assert cost <= s.lifetime_flops(other, used)


def test_too_few_parameters_reach_no_loss():
    assert s.tokens_for(2.0, 1e6, s.HOFFMANN) == math.inf
    assert s.lifetime_flops(s.Budget(2.0, 3.0), 5.0) == 36 + 20


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: s.by_rule(0), "compute=0"),
        (lambda: s.by_rule(1e20, -1), "ratio=-1"),
        (lambda: s.by_law(math.nan, s.HOFFMANN), "compute=nan"),
        (lambda: s.training_flops(1, 0), "tokens=0"),
        (lambda: s.cheapest(1.69, 0, s.HOFFMANN), "loss=1.69 must be above 1.69"),
        (lambda: s.lifetime_flops(s.Budget(1, 1), -1), "used=-1"),
    ],
)
def test_bad_numbers_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
