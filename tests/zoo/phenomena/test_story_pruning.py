"""Wanda against magnitude on the shipped model: what holds with a margin at QUICK, seed 0.

The claims at 60 %, 4:8 and 2:4 have no margin at this scale, so they are not asserted here: over
seeds 0, 1, 2 an earlier target of the same shape gave, magnitude / Wanda, 60 %: 1.018, 0.979,
1.033; 4:8: 1.009, 0.997, 1.095; 2:4: 1.014, 1.013, 1.050. The values seen below are of it as well.
"""

import pytest
import torch

from efflib import zoo
from efflib.plots.style import figure
from efflib.zoo.phenomena import pruning
from efflib.zoo.phenomena.story import QUICK


@pytest.fixture(scope="module")
def figures():
    return pruning.measure(QUICK, seed=0)


def test_wanda_is_better_at_one_half(figures):
    assert figures["magnitude 50%"] / figures["Wanda 50%"] > 1.01  # seen: 1.043, 1.028, 1.053


def test_with_shuffled_norms_the_advantage_is_gone(figures):
    # seen: 1.077, 1.086, 1.104
    assert figures["shuffled 50%"] / figures["magnitude 50%"] > 1.03


def test_large_channels_mislead_magnitude(figures):
    # seen: 1.179, 1.158, 1.199
    assert figures["magnitude, stretched 50%"] / figures["magnitude 50%"] > 1.08


def test_more_zeros_cost_more(figures):
    for method in ("magnitude", "Wanda"):
        order = ["50%", "4:8", "2:4"]
        values = [figures["dense"], *(figures[f"{method} {p}"] for p in order)]
        # seen, smallest step up: 1.21, 1.17, 1.22
        assert all(b / a > 1.08 for a, b in zip(values, values[1:], strict=False))


def test_stretching_keeps_the_function():
    model = zoo.load("target")
    ids = torch.arange(1, 65)[None]
    with torch.no_grad():
        a, b = model(ids), pruning.stretched(model, 0)(ids)
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)  # float32, logits of about 10


def test_every_claim_and_the_figure_are_made_of_what_was_measured(figures):
    made = pruning.claims(figures)
    assert len(made) == 6 and all(c.value > 0 for c in made)
    fig, axes = figure(2)
    pruning.plot(figures, axes)
    assert len(axes[0].lines) == 3
