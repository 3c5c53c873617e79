"""One normal distribution on a mixture: moments for forward KL, one mode for reverse."""

import math

import pytest

from efflib.finetuning.distillation import forward_kl, reverse_kl
from efflib.finetuning.gaussians import fit, mixture


def test_forward_kl_has_the_moments_of_the_mixture():
    found = fit(forward_kl, mixture(5.0, 0.3))
    # mean of 0.3 at -2.5 and 0.7 at 2.5 is 1; variance 1 + 0.3 0.7 25
    assert found.mean == pytest.approx(1.0, abs=0.05)
    assert found.deviation == pytest.approx(math.sqrt(1 + 0.21 * 25), abs=0.05)


def test_reverse_kl_keeps_to_the_mode_near_its_start():
    for start in (-2.0, 2.0):
        found = fit(reverse_kl, mixture(6.0, 0.5), mean=start, deviation=1.0)
        assert found.mean == pytest.approx(math.copysign(3.0, start), abs=0.1)
        assert found.deviation == pytest.approx(1.0, abs=0.05)
        assert found.value == pytest.approx(math.log(2), abs=0.05)  # the other half is missing


def test_near_modes_are_one_to_both():
    for divergence in (forward_kl, reverse_kl):
        assert abs(fit(divergence, mixture(4.0, 0.5), mean=2.0, deviation=1.0).mean) < 0.02


def test_without_two_modes_both_are_one():
    for divergence in (forward_kl, reverse_kl):
        found = fit(divergence, mixture(0.0, 0.5))
        assert abs(found.mean) < 0.02 and abs(found.deviation - 1) < 0.02 and found.value < 1e-4
