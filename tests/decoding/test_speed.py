"""The model of speed: its ends, the paper's own case, and the best draft length by search."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from efflib.decoding.speed import best_gamma, needed_acceptance, speedup

rates = st.floats(0, 1)
costs = st.floats(0, 0.5)


def test_speed_at_the_ends():
    assert speedup(0.7, 0, 0.2) == 1
    assert speedup(1.0, 4, 0.0) == 5
    assert speedup(0.0, 4, 0.25) == 0.5
    assert speedup(0.8, 3, 0.1) == pytest.approx((1 + 0.8 + 0.64 + 0.512) / 1.3)
    assert speedup(0.8, 3, 0.1, 0.1) == pytest.approx(2.952 / 1.6)


@given(rates, costs, costs)
def test_the_best_length_is_the_best(a, cost, wider):
    best = best_gamma(a, cost, wider, 20)
    most = max(speedup(a, g, cost, wider) for g in range(21))
    assert speedup(a, best, cost, wider) == most
    if best:
        assert speedup(a, best - 1, cost, wider) < most


@given(rates, st.floats(0.01, 0.5))
def test_speculation_pays_if_and_only_if_a_exceeds_c(a, cost):
    """Leviathan et al., corollary 3.9."""
    if abs(a - cost) > 1e-9:
        assert (best_gamma(a, cost) > 0) == (a > cost)


def test_needed_acceptance():
    a = needed_acceptance(2, 0.1)
    assert speedup(a, best_gamma(a, 0.1), 0.1) >= 2 > speedup(a - 1e-3, best_gamma(a, 0.1), 0.1)
    assert needed_acceptance(2, 0.6) is None
    assert needed_acceptance(1, 0.1) == 0


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="cost=-1"):
        speedup(0.5, 2, -1)
    with pytest.raises(ValueError, match="acceptance=1.5"):
        speedup(1.5, 2, 0.1)
    with pytest.raises(ValueError, match="goal=0"):
        needed_acceptance(0, 0.1)
