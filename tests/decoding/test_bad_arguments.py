"""What does not fit is named at once, in one sentence, with what is allowed."""

import math

import pytest
import torch
from tiny_models import ids_of, tiny

from efflib.decoding import beam, drafts, sampling, speculative
from efflib.decoding.sampling import Sampling, draw, filtered_probabilities, keep_top_k
from efflib.models import KVCache

MODEL, IDS = tiny(0), ids_of(1, 1, 4)


def beams(prompt, n):
    return beam.beam_search(MODEL, prompt, n, 2)


def speculated(prompt, n):
    return speculative.speculative_generate(MODEL, MODEL, prompt, n)


RUNS = [
    pytest.param(lambda prompt, n: sampling.stream(MODEL, prompt, n), id="stream"),
    pytest.param(lambda prompt, n: sampling.generate(MODEL, prompt, n), id="generate"),
    pytest.param(beams, id="beam_search"),
    pytest.param(speculated, id="speculative_generate"),
]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    "prompt, n, message",
    [
        (IDS, -1, "max_new_tokens=-1 must be an integer of at least 0"),
        (IDS, 2.5, "max_new_tokens=2.5 must be an integer"),
        (IDS[0], 3, r"prompt must be a non-empty \[B, T\], got \(4,\)"),
        (IDS[:, :0], 3, r"prompt must be a non-empty \[B, T\], got \(1, 0\)"),
        (IDS.float(), 3, "prompt must be integers, got torch.float32"),
        (IDS + 61, 3, "prompt must be from 0 to 60, got"),
        (IDS - 61, 3, "prompt must be from 0 to 60, got"),
    ],
)
def test_every_way_to_generate_checks_its_prompt(run, prompt, n, message):
    with pytest.raises(ValueError, match=message):
        run(prompt, n)


def test_nothing_new_is_the_prompt():
    assert torch.equal(sampling.generate(MODEL, IDS, 0), IDS)
    assert torch.equal(speculated(IDS, 0).ids, IDS)


def test_speculation_asks_for_one_vocabulary_and_one_prompt():
    other = tiny(1, vocab=40)
    with pytest.raises(ValueError, match="one vocabulary, got 61 and 40 entries"):
        speculative.speculative_generate(MODEL, other, IDS % 40, 3)
    with pytest.raises(ValueError, match=r"the prompt must be \[1, T\], got \(2, 4\)"):
        speculated(IDS.expand(2, 4), 3)
    with pytest.raises(ValueError, match="gamma=0 must be"):
        speculative.speculative_generate(MODEL, MODEL, IDS, 3, gamma=0)
    with pytest.raises(ValueError, match="gamma=-1"):
        drafts.propose(MODEL, IDS, -1, KVCache(), Sampling(), None)
    with pytest.raises(ValueError, match="gamma=-1"):
        speculative.expected_tokens(0.5, -1)
    with pytest.raises(ValueError, match=r"\(3,\) and \(3, 5\)"):
        speculative.verify_greedy(torch.zeros(3, dtype=torch.long), torch.zeros(3, 5))
    with pytest.raises(ValueError, match="proposed must be integers"):
        speculative.verify_greedy(torch.zeros(2), torch.zeros(3, 5))


@pytest.mark.parametrize(
    "settings, message",
    [
        (Sampling(temperature=math.nan), "temperature=nan"),
        (Sampling(temperature=math.inf), "temperature=inf"),
        (Sampling(temperature=-0.1), "temperature=-0.1"),
        (Sampling(top_k=0), "top_k=0 must be an integer of at least 1"),
        (Sampling(top_k=2.5), "top_k=2.5 must be an integer"),
        (Sampling(top_p=0.0), "top_p=0.0"),
        (Sampling(top_p=math.nan), "top_p=nan"),
    ],
)
def test_samplings_are_checked_before_the_model_runs(settings, message):
    with pytest.raises(ValueError, match=message):
        sampling.stream(MODEL, IDS, 3, settings)


def test_logits_without_an_order_are_refused():
    logits = torch.tensor([0.0, math.nan, 1.0])
    for greedy in (True, False):
        with pytest.raises(ValueError, match=r"logits \(3,\) hold NaN"):
            filtered_probabilities(logits, Sampling(0.0 if greedy else 1.0))
    with pytest.raises(ValueError, match=r"p=0.0 must be in \(0, 1\]"):
        sampling.keep_top_p(torch.zeros(3), 0.0)
    with pytest.raises(ValueError, match="k=0"):
        keep_top_k(torch.zeros(3), 0)
    with pytest.raises(ValueError, match=r"logits must be a non-empty \[..., V\], got \(0,\)"):
        filtered_probabilities(torch.zeros(0), Sampling())


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_tokens_are_drawn_from_rows_of_any_shape(shape):
    p = torch.eye(5)[torch.full(shape, 3)]  # [..., 5]
    assert torch.equal(draw(p), torch.full(shape, 3))


@pytest.mark.parametrize("row", [[0.0, 0.0], [-1.0, 2.0], [math.nan, 1.0]])
def test_rows_that_are_no_distribution_are_refused(row):
    with pytest.raises(ValueError, match=r"cannot draw from \(2,\)"):
        draw(torch.tensor(row))


def test_beams_are_counted_from_one():
    with pytest.raises(ValueError, match="beams=0 must be an integer of at least 1"):
        beam.beam_search(MODEL, IDS, 3, 0)
    with pytest.raises(ValueError, match="a score for each of 3 beams, got 2"):
        beam.extensions(torch.zeros(3, 5), torch.zeros(2), 4)
