"""The draft's story: orderings and claims."""

import pytest

from efflib.zoo.phenomena import speculative as story
from efflib.zoo.phenomena.story import QUICK


@pytest.fixture(scope="module")
def figures():
    return story.measure(QUICK, 0)


def test_orderings(figures):
    f = figures
    assert f["acceptance"] > 0.58  # seen: 0.628, 0.667, 0.637
    assert f["acceptance"] > f["agreement"] + 0.04  # seen differences: 0.086, 0.156, 0.137
    assert f["random acceptance"] < 0.05  # seen: 0.010, 0.004, 0.001
    tokens = [f[f"tokens g={g}"] for g in story.GAMMAS]
    assert tokens == sorted(tokens)
    assert tokens[3] > 2 * f["random tokens g=4"]  # seen ratios: 2.37, 2.52, 2.43
    assert f["tokens g=8"] - f["tokens g=4"] < f["tokens g=4"] - 1  # saturates


def test_claims_and_plot(figures):
    from efflib.plots.style import figure

    assert all(isinstance(c.holds, bool) for c in story.claims(figures))
    _, axes = figure(2)
    story.plot(figures, axes)
    assert len(axes[1].lines) == 3
