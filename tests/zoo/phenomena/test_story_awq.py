"""AWQ's story: orderings, and that the models compared are what their names say."""

import pytest
import torch

from efflib import zoo
from efflib.plots.style import figure
from efflib.quantization.awq_model import record
from efflib.quantization.ptq import quantize_model
from efflib.quantization.size import quantizable_linears
from efflib.zoo.phenomena import awq as story
from efflib.zoo.phenomena.story import QUICK, Mean, windows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def figures():
    return story.measure(QUICK, 0)


def test_orderings(figures):
    """Added losses. Orderings that are within the noise are left out: see the story's text."""
    for bits in (4, 3):
        f = {k.removeprefix(f"outliers {bits} "): v for k, v in figures.items()}
        assert f["keep |X|"] < 0.15 * f["RTN"]  # seen at most: 0.077
        assert f["keep |W|"] > 0.8 * f["RTN"]  # seen at least: 0.946
        assert f["keep random"] > 0.8 * f["RTN"]  # seen at least: 0.917
        best = min(f[f"x{n}"] for n in story.FACTORS)
        assert f["RTN"] > 1.1 * best  # seen at least: 1.185
        assert f["x16"] > 1.5 * best  # seen at least: 2.8
        assert best > f["search + clip"]  # seen at least: 1.36 times
        assert f["RTN + bias"] > 2 * f["search + clip"]  # seen at least: 4.0 times
    # seen at least: 1.26; at 4 bits the damage itself is within the noise
    assert figures["plain 3 RTN"] > 1.1 * figures["plain 3 search + clip"]


def test_claims_and_plot(figures):
    claims = story.claims(figures)
    assert len(claims) == 20 and len({c.text for c in claims}) == 20
    _, axes = figure(2)
    story.plot(Mean.of([figures]), axes)
    assert all(ax.has_data() and ax.get_legend() for ax in axes)


def test_corrected_biases_take_off_the_mean_of_the_error():
    model = zoo.load("draft")
    ids = windows("code", False, QUICK, 0)[:2, :65]
    calibration = record(model, ids)
    rounded = quantize_model(model, 3, 32)[0]
    corrected = story.bias_corrected(model, rounded, calibration)
    for name, layer in quantizable_linears(model).items():
        x, mended = calibration.inputs[name], corrected.get_submodule(name)
        error = (mended(x) - layer(x)).flatten(0, -2).mean(0)
        assert error.abs().max() < 1e-4 * layer(x).abs().max()
        assert torch.equal(mended.weight, rounded.get_submodule(name).weight)
        assert rounded.get_submodule(name).bias is None


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
