"""Drafts decide how fast speculation is, never what comes out; lookups against plain search."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import ids_of, tiny

from efflib.decoding.drafts import FirstOf, LookupDraft, ModelDraft, lookup, next_gamma
from efflib.decoding.sampling import GREEDY, Sampling, filtered_probabilities, generate
from efflib.decoding.speculative import speculative_generate, verify_sampled


def searched(text: list[int], gamma: int, longest: int) -> list[int]:
    """The same, character by character."""
    for n in range(longest, 0, -1):
        tail = text[-n:]
        for start in range(len(text) - n - 1, -1, -1):
            if len(tail) == n and text[start : start + n] == tail:
                return text[start + n :][:gamma]
    return []


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=14), st.integers(0, 5), st.integers(1, 4))
def test_lookup_is_a_search_from_behind(text, gamma, longest):
    assert lookup(torch.tensor(text), gamma, longest).tolist() == searched(text, gamma, longest)


def test_lookup_by_hand():
    text = torch.tensor([7, 1, 2, 3, 1, 2, 4, 5, 1, 2])
    assert lookup(text, 3).tolist() == [4, 5, 1]  # 1 2 stood before twice: the last counts
    assert lookup(text[:3], 3).tolist() == []
    assert lookup(torch.tensor([6, 6]), 3).tolist() == [6]
    with pytest.raises(ValueError, match="longest=0"):
        lookup(text, 3, 0)


def drafts(sampling, generator):
    other = tiny(1).double()
    near = tiny(0).double()
    noise = torch.randn(61, 32, generator=torch.Generator().manual_seed(2))
    near.lm_head.weight.data += 0.15 * noise
    return {
        "other": ModelDraft(other, sampling, generator),
        "unsure": ModelDraft(near, sampling, generator, sure=0.5),
        "lookup": LookupDraft(),
        "both": FirstOf(LookupDraft(4), ModelDraft(near, sampling, generator)),
    }


@pytest.mark.parametrize("kind", ["other", "unsure", "lookup", "both"])
@pytest.mark.parametrize("adapt", [None, next_gamma])
def test_every_draft_leaves_greedy_text_as_it_is(kind, adapt):
    target = tiny(0).double()
    for seed in range(2):
        prompt = ids_of(seed, 1, 6)
        draft = drafts(GREEDY, None)[kind]
        out = speculative_generate(target, draft, prompt, 25, 3, adapt=adapt)
        assert torch.equal(out.ids, generate(target, prompt, 25))
        assert out.passes + out.accepted == 25


def test_a_draft_that_is_unsure_stops_early_and_is_accepted_more():
    target, wide, short = tiny(0).double(), [], []
    for seed in range(3):
        made = drafts(GREEDY, None)["unsure"]
        for sure, found in ((0.0, wide), (0.7, short)):
            draft = ModelDraft(made.model, sure=sure)
            found.append(speculative_generate(target, draft, ids_of(seed, 1, 5), 30, 6))
    assert sum(s.proposed for s in short) < sum(s.proposed for s in wide)
    kept = [sum(s.accepted for s in runs) / sum(s.proposed for s in runs) for runs in (short, wide)]
    assert kept[0] > kept[1]


@pytest.mark.parametrize("kind", ["unsure", "lookup"])
def test_sampled_text_is_the_targets(kind):
    """Two tokens over a vocabulary of 4, 250 runs: chi-square over the 16 pairs."""
    target, near = tiny(6, 1, 16, vocab=4), tiny(7, 1, 16, vocab=4)
    sampling, n = Sampling(1.3), 250
    prompt = torch.tensor([[0, 1, 2, 0, 1]])
    generator, counts = torch.Generator().manual_seed(9), torch.zeros(4, 4)
    for _ in range(n):
        model = ModelDraft(near, sampling, generator, sure=0.5)
        draft = {"unsure": model, "lookup": LookupDraft()}
        out = speculative_generate(target, draft[kind], prompt, 2, 2, sampling, generator)
        counts[tuple(out.ids[0, 5:].tolist())] += 1
    pairs = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    with torch.no_grad():
        logits = target(torch.cat([prompt.expand(16, 5), pairs], dim=1))[:, 4:6]
    chances = filtered_probabilities(logits, sampling).gather(2, pairs[..., None]).prod(1)[:, 0]
    expected, counts = n * chances, counts.flatten()
    cells = expected >= 5
    assert cells.sum() > 6
    expected = torch.cat([expected[cells], expected[~cells].sum()[None] + 1e-9])
    counts = torch.cat([counts[cells], counts[~cells].sum()[None]])
    bound = len(expected) + 6 * (2 * len(expected)) ** 0.5
    assert ((counts - expected) ** 2 / expected).sum() < bound


def test_certain_proposals_are_one_hot():
    p = torch.tensor([[0.2, 0.8, 0.0], [0.5, 0.25, 0.25]])
    q = torch.tensor([[0.0, 1.0, 0.0]])
    for seed in range(20):
        runs = [
            verify_sampled(torch.tensor([1]), rows, p, torch.Generator().manual_seed(seed))
            for rows in (None, q)
        ]
        assert torch.equal(*runs)


def test_lengths_that_follow_what_was_accepted():
    assert next_gamma(4, 4, 4) == 6 and next_gamma(4, 4, 3) == 3
    assert next_gamma(1, 1, 0) == 1 and next_gamma(16, 16, 16) == 16


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"sure=1.5 must be in \[0, 1\]"):
        ModelDraft(tiny(0), sure=1.5)
    with pytest.raises(ValueError, match="no drafts"):
        FirstOf()
