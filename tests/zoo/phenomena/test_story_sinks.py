"""The sinks' story at a small setting: orderings only."""

import pytest
import torch

from efflib.zoo.phenomena import sinks as story
from efflib.zoo.phenomena.story import QUICK


@pytest.fixture(scope="module")
def figures():
    return story.measure(QUICK, 0)


def test_orderings_in_small_caches(figures):
    f = figures
    best = min(f[f"sinks {n} @16"] for n in (1, 2, 4))
    assert f["window @16"] > 1.15 * best  # seen ratios: 1.38, 1.45, 1.27
    assert f["window @32"] > 1.08 * f["sinks 1 @32"]  # seen ratios: 1.17, 1.15, 1.16
    assert f["random 4 @16"] > 1.15 * f["sinks 4 @16"]  # seen ratios: 1.42, 1.49, 1.37
    assert f["recompute @16"] > 1.15 * f["recompute s @16"]  # seen ratios: 1.40, 1.47, 1.39
    assert f["dense"] < min(v for k, v in f.items() if k.endswith(("@16", "@32")))


def test_shares_are_those_of_the_probe(figures):
    assert 0 < figures["mean share"] < figures["largest share"] < 1
    assert sum(key.startswith("share ") for key in figures) == 36


def test_claims_and_plot(figures):
    from efflib.plots.style import figure

    assert all(isinstance(c.holds, bool) for c in story.claims(figures))
    _, axes = figure(2)
    story.plot(figures, axes)
    assert len(axes[0].patches) == 16


def test_the_control_keeps_four_tokens_that_are_not_the_first():
    for seed in range(20):
        tokens = story.control_tokens(seed)
        assert len(set(tokens)) == 4 and min(tokens) >= 4
    assert story.control_tokens(0) != story.control_tokens(1)


def test_perplexity_at_is_the_definition():
    ids, at = torch.tensor([[1, 2, 0, 3]]), torch.tensor([0, 2])
    logits = torch.randn(1, 2, 4)
    p = logits.softmax(-1)[0]
    expected = (p[0, 2] * p[1, 3]) ** -0.5
    assert story.perplexity_at(logits, ids, at) == pytest.approx(expected.item(), rel=1e-5)
