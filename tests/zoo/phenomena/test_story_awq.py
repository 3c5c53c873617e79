"""AWQ's story: orderings, and that the models compared are what their names say."""

import pytest
import torch

from efflib import zoo
from efflib.quantization.awq_model import record
from efflib.quantization.size import quantizable_linears
from efflib.zoo.phenomena import awq as story
from efflib.zoo.phenomena.story import QUICK, windows


@pytest.fixture(scope="module")
def figures():
    return story.measure(QUICK, 0)


def test_orderings(figures):
    """Added losses. Orderings that are within the noise are left out: see the story's text."""
    for bits in (4, 3):
        f = {k.removeprefix(f"outliers {bits} "): v for k, v in figures.items()}
        assert f["keep |X|"] < 0.1 * f["RTN"]  # seen at most: 0.015
        assert f["keep |W|"] > 0.8 * f["RTN"]  # seen at least: 0.968
        assert f["keep random"] > 0.8 * f["RTN"]  # seen at least: 0.989
        inner = min(f[f"x{n}"] for n in (2, 3, 4, 8))
        assert f["RTN"] > 1.1 * inner  # seen: 6.10, 5.53, 5.95; 3 bits: 1.50, 1.44, 1.42
        assert f["RTN"] > 1.2 * f["search"]  # seen: 10.5, 13.5, 7.5; 3 bits: 1.67, 1.71, 1.68
    # seen ratios: 1.99, 2.08
    assert figures["outliers 4 x16"] > 1.3 * min(figures[f"outliers 4 x{n}"] for n in (2, 3, 4, 8))
    # seen: 1.28, 2.14, 1.60; at 4 bits the damage itself is within the noise
    assert figures["plain 3 RTN"] > 1.1 * figures["plain 3 search + clip"]


def test_claims_and_plot(figures):
    from efflib.plots.style import figure

    claims = story.claims(figures)
    assert len(claims) == 16 and len({c.text for c in claims}) == 16
    assert sum(c.holds for c in claims) >= 12  # seen: 15, 15, 14
    fig, axes = figure(2)
    story.plot(figures, axes)
    assert all(ax.has_data() and ax.get_legend() for ax in axes)


def test_every_way_touches_the_same_number_of_channels():
    """3 % of the columns of every linear are as before, whatever they are chosen by."""
    model = zoo.load("target")
    calibration = record(model, windows("code", False, QUICK, 0)[:1, :32])
    made = story.by_hand(model, calibration, 3, seed=0)
    assert made.keys() == {"keep |X|", "keep |W|", "keep random", "x2", "x3", "x4", "x8", "x16"}
    for name, layer in quantizable_linears(model).items():
        for by in story.SCORES:
            w = made[f"keep {by}"].get_submodule(name).weight
            same = (w == layer.weight).all(0).sum().item()
            assert same == round(story.FRACTION * layer.in_features)
    assert torch.equal(made["x2"].lm_head.weight, model.lm_head.weight)
