"""Rounds that are counted on a written text are those that a loop takes."""

import pytest
import torch

from efflib import zoo
from efflib.decoding import replay
from efflib.decoding.drafts import LookupDraft, ModelDraft, lookup
from efflib.decoding.sampling import generate
from efflib.decoding.speculative import speculative_generate
from efflib.decoding.tree import ModelTree, tree_generate
from efflib.zoo.phenomena.speculative import PROMPT
from efflib.zoo.phenomena.story import QUICK, windows


@pytest.fixture(scope="module")
def written():
    """(target, draft, prompts [2, T], their greedy texts [2, T + 24]), in float64."""
    target, draft = zoo.load("target").double(), zoo.load("draft").double()
    text = windows("code", True, QUICK, 0)[:2, : 1 + PROMPT]
    return target, draft, text, generate(target, text, 24)


def test_replay_by_hand():
    same = torch.tensor([[True, True, False, True, True, True, False]])
    assert replay.replay(same, 1) == 7 / 4  # TT | F | TT | TF
    assert replay.replay(same, 2) == 7 / 3  # TTF | TTT | F
    assert replay.replay(torch.zeros(2, 5, dtype=torch.bool), 3) == 1.0
    assert replay.rounds(same[0].tolist(), 1) == (4, 4)
    assert replay.rounds(same[0].tolist(), 2) == (3, 4)  # the last pass has no use for a proposal


def test_shuffled_agreements_keep_their_rates_and_lose_their_runs():
    same = torch.tensor([[True] * 20 + [False] * 20])
    values = replay.shuffled([same, same], 1, times=50)
    assert values == sorted(values) and len(values) == 50
    assert replay.replay(same, 1) < values[0]  # one run of each kind: fewest tokens at g = 1
    every = torch.ones(2, 8, dtype=torch.bool)
    assert set(replay.shuffled([every, ~every], 3, times=5)) == {(4 + 1) / 2}
    order = replay.shuffled([same], 4, times=50)
    assert order == replay.shuffled([same], 4, times=50) != replay.shuffled([same], 4, 50, seed=1)


def test_replay_counts_what_the_loop_counts(written):
    target, draft, text, own = written
    same = replay.same_choice(target, draft, own, 1 + PROMPT)
    assert 0 < same.sum() < same.numel()
    for gamma in (1, 3):
        runs = [speculative_generate(target, draft, prompt[None], 24, gamma) for prompt in text]
        assert torch.equal(torch.cat([r.ids for r in runs]), own)
        assert replay.replay(same, gamma) == same.numel() / sum(r.passes for r in runs)


def test_lookups_are_counted_as_the_loop_counts_them(written):
    target, _, text, own = written
    for prompt, ids in zip(text, own, strict=True):
        run = speculative_generate(target, LookupDraft(), prompt[None], 24, 5)

        def propose(done, room, ids=ids):
            return lookup(ids[:done], 5).tolist()

        assert replay.replayed(ids.tolist(), 1 + PROMPT, propose) == (run.passes, run.proposed)


def test_trees_are_counted_as_the_loop_counts_them(written):
    target, draft, text, own = written
    for widths in ((1, 1), (3, 2), (2, 2, 1)):
        for prompt, ids in zip(text, own, strict=True):
            run = tree_generate(target, ModelTree(draft, widths), prompt[None], 24)
            row = replay.ranks(draft, ids[None], 1 + PROMPT)
            assert replay.tree_rounds(row, widths) == run.passes


def test_a_draft_that_stops_when_unsure_is_counted_as_the_loop_counts_it(written):
    target, draft, text, own = written
    for prompt, ids in zip(text, own, strict=True):
        runs = replay.drafted(draft, ids[None], 1 + PROMPT, 6)
        assert len(runs) == 24 and all(len(run) == 6 for run in runs)

        def propose(done, room, runs=runs):
            run = runs[done - 1 - PROMPT][:room]
            behind = next((i for i, (_, chance) in enumerate(run) if chance < 0.6), len(run))
            return [token for token, _ in run[: behind + 1]]

        loop = speculative_generate(target, ModelDraft(draft, sure=0.6), prompt[None], 24, 6)
        counted = replay.replayed(ids.tolist(), 1 + PROMPT, propose)
        assert counted == (loop.passes, loop.proposed)


def test_by_hand():
    guesses = {2: [5, 6, 7], 5: [1], 6: [9, 9]}
    text = [1, 2, 5, 6, 8, 3, 9, 9]
    assert replay.replayed(text, 2, lambda done, room: guesses.get(done, [])) == (3, 5)
    assert replay.tree_rounds([0, 0, 3, 0, 1], (1, 1, 1)) == 2
    assert replay.tree_rounds([0, 2, 0], (2, 3)) == 1
    assert replay.tree_rounds([0, 2, 0], ()) == 3


def test_constants_by_hand():
    # one proposal: TT | FT, three at most of use in FFFF; two: TTF | T, and 2 + 2 + 1 in FFFF
    rows = [[True, True, False, True], [False] * 4]
    assert replay.rounds(rows[0], 1) == (3, 2) and replay.rounds(rows[1], 1) == (4, 3)
    assert replay.rounds(rows[0], 2) == (2, 2) and replay.rounds(rows[1], 2) == (4, 5)
    assert replay.constants(rows, 0.5, 2) == {1: 8 / (7 + 2.5), 2: 8 / (6 + 3.5)}


def test_an_adaptive_length_sees_the_rounds_before():
    text = [0, 1, 1, 1, 2, 1, 1, 1]
    guesses = [[(1, 0.9), (1, 0.8), (1, 0.4)]] * 7
    seen = []

    def length(chances, history):
        seen.append((len(chances), history))
        return 2

    assert replay.adaptive(text, 1, guesses, length) == (3, 6)
    assert seen == [(3, []), (3, [(2, 2)]), (2, [(2, 2), (2, 0)])]
    assert replay.adaptive(text, 1, guesses, lambda chances, history: 0) == (7, 0)
