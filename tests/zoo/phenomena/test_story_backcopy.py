"""The live sink at QUICK: orderings only."""

from efflib.plots.style import figure
from efflib.zoo.phenomena import backcopy as story
from efflib.zoo.phenomena.story import QUICK


def test_orderings_and_plot():
    f = story.measure(QUICK, 0)
    assert f["share, step 1"] < 0.15  # seen: 0.056 three times, about 1 / 18
    assert f["dormant share"] > 0.5  # seen: 0.756, 0.800, 0.689
    assert f["share after triggers"] < 0.25  # seen: 0.074, 0.048, 0.089
    assert f["excess, window"] > 1.2 * f["excess, sink"]  # seen ratios: 2.37, 1.48, 1.58
    assert f["excess, other token"] > 1.2 * f["excess, sink"]  # seen ratios: 2.04, 1.45, 1.69
    assert f["excess, sink"] < 1.2 * f["excess, dense"]  # seen ratios: 1.04, 1.01, 1.00
    assert all(isinstance(c.holds, bool) for c in story.claims(f))
    _, axes = figure(2)
    story.plot(f, axes)
    assert len(axes[1].patches) == 4
