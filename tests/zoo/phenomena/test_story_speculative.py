"""The draft's story: orderings, and that replayed rounds are those of the loop."""

import pytest
import torch

from efflib import zoo
from efflib.decoding.sampling import generate
from efflib.decoding.speculative import speculative_generate
from efflib.zoo.phenomena import speculative as story
from efflib.zoo.phenomena.story import QUICK, windows


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


def test_replay_by_hand():
    same = torch.tensor([[True, True, False, True, True, True, False]])
    assert story.replay(same, 1) == 7 / 4  # TT | F | TT | TF
    assert story.replay(same, 2) == 7 / 3  # TTF | TTT | F
    assert story.replay(torch.zeros(2, 5, dtype=torch.bool), 3) == 1.0
    assert story.rounds(same[0].tolist(), 1) == (4, 4)
    assert story.rounds(same[0].tolist(), 2) == (3, 4)  # the last pass has no use for a proposal


def test_shuffled_agreements_keep_their_rates_and_lose_their_runs():
    same = torch.tensor([[True] * 20 + [False] * 20])
    values = story.shuffled([same, same], 1, times=50)
    assert values == sorted(values) and len(values) == 50
    assert story.replay(same, 1) < values[0]  # one run of each kind: fewest tokens at g = 1
    every = torch.ones(2, 8, dtype=torch.bool)
    assert set(story.shuffled([every, ~every], 3, times=5)) == {(4 + 1) / 2}
    order = story.shuffled([same], 4, times=50)
    assert order == story.shuffled([same], 4, times=50) != story.shuffled([same], 4, 50, seed=1)


def test_replay_counts_what_the_loop_counts():
    target, draft = zoo.load("target").double(), zoo.load("draft").double()
    text = windows("code", True, QUICK, 0)[:2, : 1 + story.PROMPT]
    own = generate(target, text, 24)
    same = story.same_choice(target, draft, own, 1 + story.PROMPT)
    assert 0 < same.sum() < same.numel()
    for gamma in (1, 3):
        runs = [speculative_generate(target, draft, prompt[None], 24, gamma) for prompt in text]
        assert torch.equal(torch.cat([r.ids for r in runs]), own)
        assert story.replay(same, gamma) == same.numel() / sum(r.passes for r in runs)
