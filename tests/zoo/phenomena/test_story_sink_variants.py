"""Three ways to have a sink or none, at a small setting: orderings only, over seeds 0, 1, 2."""

import pytest
import torch

from efflib.models import Llama, LlamaConfig
from efflib.plots.style import figure
from efflib.zoo.phenomena import sink_variants as story
from efflib.zoo.phenomena.story import QUICK
from efflib.zoo.tokenizer import VOCAB_SIZE


@pytest.fixture(scope="module")
def figures():
    return story.measure(QUICK, 0)


def test_only_the_model_with_a_learned_sink_needs_it(figures):
    gains = {name: story.gain(figures, name, 16) for name in story.MODELS}
    assert gains["learnable_sink"] > 1.25  # seen: 1.51, 1.44, 1.42
    for name in ("vanilla", "zero_sink"):
        assert 0.9 < gains[name] < 1.1  # seen: 1.00, 1.02, 0.99; 0.98, 1.01, 0.97


def test_with_its_sink_it_is_where_the_others_are(figures):
    mine = figures["learnable_sink 1+15"]
    for name in ("vanilla", "zero_sink"):
        assert 0.85 < mine / figures[f"{name} 0+16"] < 1.15  # seen: 0.90 to 1.04


def test_attention_rests_on_what_is_made_for_it(figures):
    shares = {name: figures[f"{name} largest share"] for name in story.MODELS}
    assert shares["vanilla"] < 0.15  # seen: 0.06, 0.03, 0.03
    assert shares["learnable_sink"] > 0.25  # seen: 0.40, 0.37, 0.39
    assert shares["zero_sink"] > 0.25  # seen: 0.38, 0.34, 0.34


def test_all_models_are_scored_on_the_same_tokens(monkeypatch):
    config = LlamaConfig(VOCAB_SIZE, 8, 8, 1, 1, 1, 8)
    seen = {}

    def remember(model: Llama, ids: torch.Tensor, at: torch.Tensor) -> dict[str, float]:
        seen[len(seen)] = ids[:, at + 1]
        return {}

    monkeypatch.setattr(story, "streamed", remember)
    monkeypatch.setattr(story.zoo, "load", lambda name: Llama(config), raising=False)
    story.measure(QUICK._replace(windows=2, length=80), 0)
    assert len(seen) == 3 and torch.equal(seen[0], seen[1]) and torch.equal(seen[0], seen[2])


def test_claims_and_plot(figures):
    made = story.claims(figures)
    assert len(made) == 6 and all(claim.value > 0 for claim in made)
    _, axes = figure(2)
    story.plot(figures, axes)
    assert [len(ax.lines) for ax in axes] == [4, 4]
