"""Beam search against exhaustive search and against transformers."""

import itertools

import pytest
import torch
from tiny_models import ids_of, theirs, tiny

from efflib.decoding.beam import beam_search
from efflib.decoding.sampling import generate
from efflib.models import KVCache


@torch.no_grad()
def log_p(model, prompt, new):
    ids = torch.cat([prompt, torch.tensor([new])], dim=1)
    scores = model(ids)[0].log_softmax(-1)[prompt.shape[1] - 1 : -1]
    return scores.gather(1, torch.tensor(new)[:, None]).sum().item()


def test_one_beam_is_greedy():
    model, prompt = tiny(0), ids_of(1, 1, 6)
    assert torch.equal(beam_search(model, prompt, 20, 1).ids[0], generate(model, prompt, 20)[0])


def test_beams_enough_for_everything_find_the_best_sequence():
    model, prompt = tiny(2, vocab=5).double(), ids_of(3, 1, 4, vocab=5)
    found = beam_search(model, prompt, 4, beams=5**3)
    everything = {new: log_p(model, prompt, new) for new in itertools.product(range(5), repeat=4)}
    best = sorted(everything, key=everything.get, reverse=True)[: 5**3]
    assert [tuple(ids[4:].tolist()) for ids in found.ids] == best
    expected = [everything[new] / 4 for new in best]
    assert found.scores == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0, -1.0])
@pytest.mark.parametrize("with_end", [False, True])
def test_equals_transformers(tmp_path, seed, penalty, with_end):
    model, prompt = tiny(10 + seed, vocab=17), ids_of(seed, 1, 6, vocab=17)
    # An end token that greedy decoding meets after some steps, so that beams of several
    # lengths compete.
    eos = int(generate(model, prompt, 6)[0, -1]) if with_end else None
    settings = dict(num_beams=4, num_return_sequences=4, length_penalty=penalty)
    out = theirs(model, tmp_path).generate(
        prompt,
        max_new_tokens=15,
        do_sample=False,
        attention_mask=torch.ones_like(prompt),
        eos_token_id=eos,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    ours = beam_search(model, prompt, 15, 4, penalty, eos)
    assert len(ours.ids) == 4
    # sums of up to 15 log-probabilities, each off by some 1e-6 as the logits are, relative to 1 or
    # more; a step that is left out or counted twice is 1 / 15 of them
    expected_scores = out.sequences_scores.float()
    torch.testing.assert_close(torch.tensor(ours.scores), expected_scores, rtol=1e-4, atol=0)
    for row, expected in zip(ours.ids, out.sequences, strict=True):
        assert torch.equal(row, expected[: len(row)])
        assert set(expected[len(row) :].tolist()) <= {0, eos}  # padding


def test_a_length_penalty_can_change_the_winner():
    lengths = set()
    for seed in range(8):
        model, prompt = tiny(10 + seed, vocab=17), ids_of(seed, 1, 6, vocab=17)
        eos = int(generate(model, prompt, 6)[0, -1])
        short, long = (beam_search(model, prompt, 15, 4, a, eos).ids[0] for a in (-1.0, 3.0))
        assert len(short) <= len(long)
        lengths.add(len(short) < len(long))
    assert True in lengths


def test_reordering_a_cache_is_the_cache_of_the_reordered_batch():
    model, ids, rows = tiny(4).double(), ids_of(5, 3, 7), torch.tensor([2, 0, 0, 1])
    cache, expected, more = KVCache(), KVCache(), ids_of(6, 4, 2)
    with torch.no_grad():
        model(ids, cache=cache)
        model(ids[rows], cache=expected)
        cache.reorder(rows)
        torch.testing.assert_close(
            model(more, cache=cache), model(more, cache=expected), rtol=0, atol=1e-12
        )


def test_errors_show_the_shape():
    with pytest.raises(ValueError, match=r"must be \[1, T\], got \(2, 3\)"):
        beam_search(tiny(0), torch.zeros(2, 3, dtype=torch.long), 5, 4)
