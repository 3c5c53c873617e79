"""GPTQ's story: orderings, controls, and that its controls are what their names say."""

import pytest
import torch

from efflib.hessian import gram
from efflib.plots.style import figure
from efflib.zoo.phenomena import gptq as story
from efflib.zoo.phenomena.story import QUICK, Mean

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def figures():
    return story.measure(QUICK, 0)


def test_orderings(figures):
    """Added losses; what was seen is the least of seeds 0, 1, 2."""
    f = {k.removeprefix("2 bits "): v for k, v in figures.items()}
    assert f["RTN"] / f["GPTQ"] > 1.5  # seen at least: 1.91
    assert f["GPTQ"] / f["act-order"] > 1.04  # seen at least: 1.097
    assert figures["3 bits RTN"] / figures["3 bits GPTQ"] > 1.3  # seen at least: 1.62


def test_controls(figures):
    f = {k.removeprefix("2 bits "): v for k, v in figures.items()}
    assert f["diagonal"] == f["RTN"]  # the same weights, bit by bit
    assert f["shuffled"] / f["GPTQ"] > 1.1  # seen at least: 1.21
    assert f["RTN + bias"] / f["GPTQ"] > 1.1  # seen at least: 1.22
    assert f["on prose"] / f["GPTQ"] > 1.2  # seen at least: 1.35
    # what is shuffled still has means: it repairs a part
    assert f["RTN"] / f["shuffled"] > 1.2  # seen at least: 1.33


def test_rotation(figures):
    for kind in ("large", "merged"):
        assert figures[f"{kind} plain"] / figures[f"{kind} rotated"] > 50  # seen: 187
        assert figures[f"{kind} rotated"] < 1.05 * figures[f"{kind} float, rotated"]
    # seen: plain within 0.9 % of rotated
    assert figures["trained plain"] == pytest.approx(figures["trained rotated"], rel=0.02)
    kinds = ("large", "merged", "trained")
    floats = [figures[f"{kind} float, rotated"] for kind in kinds]
    assert max(floats) == pytest.approx(min(floats), rel=1e-4)


def test_claims_and_plot(figures):
    claims = story.claims(figures)
    assert len(claims) == 11 and len({c.text for c in claims}) == 11
    assert all(c.holds for c in claims)
    _, axes = figure(2)
    story.plot(Mean.of([figures]), axes)
    assert all(ax.has_data() for ax in axes) and axes[1].get_legend()


def test_shuffled_inputs_keep_means_and_sizes_and_lose_what_goes_together():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 1, generator=g).repeat(1, 3) + torch.tensor([1.0, 2.0, 0.0])
    h, mixed = gram(x) / 4000, story.shuffled(0)(x) / 4000
    torch.testing.assert_close(mixed.diagonal(), h.diagonal())
    means = x.double().mean(0)
    apart = means.outer(means)
    off = ~torch.eye(3, dtype=torch.bool)
    # covariances of 4000 independent pairs: within 5 / sqrt(4000)
    assert (mixed - apart)[off].abs().max() < 5 / 4000**0.5 < 0.9 < (h - apart)[off].min()
    assert torch.equal(story.diagonal(x), torch.diag(gram(x).diagonal()))
