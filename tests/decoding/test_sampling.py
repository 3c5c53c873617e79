"""Filters against their definitions and transformers' warpers; generation against recomputing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import ids_of, theirs, tiny

from efflib.decoding.sampling import (
    GREEDY,
    Sampling,
    draw,
    filtered_probabilities,
    generate,
    stream,
)
from efflib.models import KVCache


def some_logits(seed: int, *shape: int) -> torch.Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


SETTINGS = st.builds(
    Sampling,
    st.floats(0.1, 3.0),
    st.none() | st.integers(1, 25),
    st.none() | st.floats(0.01, 1.0),
)


@settings(deadline=None)
@given(st.integers(0, 2**31), SETTINGS)
def test_filters_are_the_definition(seed, sampling):
    logits = some_logits(seed, 2, 20)
    before = logits.clone()
    actual = filtered_probabilities(logits, sampling)
    assert torch.equal(logits, before)
    for row, got in zip(logits, actual, strict=True):
        order = sorted(range(20), key=lambda i: -row[i])[: sampling.top_k or 20]
        p = torch.zeros(20, dtype=torch.float64)
        p[order] = (row[order] / sampling.temperature).softmax(0)
        kept, mass = [], 0.0
        for i in order:
            kept.append(i)
            mass += p[i].item()
            if sampling.top_p is not None and mass >= sampling.top_p:
                break
        expected = torch.zeros_like(p)
        expected[kept] = p[kept] / p[kept].sum()
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-15)


@settings(deadline=None)
@given(st.integers(0, 2**31), SETTINGS)
def test_filters_are_those_of_transformers(seed, sampling):
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = some_logits(seed, 3, 20)
    scores = TemperatureLogitsWarper(sampling.temperature)(None, logits)
    if sampling.top_k is not None:
        scores = TopKLogitsWarper(sampling.top_k)(None, scores)
    if sampling.top_p is not None:
        scores = TopPLogitsWarper(sampling.top_p)(None, scores)
    torch.testing.assert_close(filtered_probabilities(logits, sampling), scores.softmax(-1))


def test_ties_at_the_kth_logit_all_stay():
    p = filtered_probabilities(torch.tensor([2.0, 1.0, 1.0, 0.0]), Sampling(top_k=2))
    assert (p > 0).tolist() == [True, True, True, False]


def test_the_most_likely_token_survives_any_filter():
    logits = some_logits(0, 5, 20)
    for sampling in (GREEDY, Sampling(top_k=1), Sampling(top_p=1e-9), Sampling(1e-4)):
        p = filtered_probabilities(logits, sampling)
        expected = torch.nn.functional.one_hot(logits.argmax(-1), 20).double()
        torch.testing.assert_close(p, expected)


def test_half_precision_logits_give_fp32_probabilities():
    p = filtered_probabilities(some_logits(1, 4, 20).half(), Sampling(0.7, 10, 0.9))
    assert p.dtype == torch.float32
    torch.testing.assert_close(p.sum(-1), torch.ones(4))


@pytest.mark.parametrize(
    "bad", [Sampling(-1.0), Sampling(float("nan")), Sampling(top_k=0), Sampling(top_p=0.0)]
)
def test_settings_out_of_range_are_named(bad):
    with pytest.raises(ValueError, match="temperature=|top_k=0|top_p=0.0"):
        filtered_probabilities(torch.zeros(4), bad)


def test_draws_follow_the_probabilities():
    n, p = 20_000, torch.tensor([0.5, 0.0, 0.3, 0.2])
    drawn = draw(p.expand(n, 4), torch.Generator().manual_seed(2))
    counts = torch.bincount(drawn, minlength=4)
    assert counts[1] == 0
    chi2 = ((counts - n * p)[p > 0] ** 2 / (n * p[p > 0])).sum().item()
    # 2 degrees of freedom: exceeded once in a million seeds, and a seed is another stream of
    # numbers on another vendor's CPU
    assert chi2 < 27.7


def recomputed(model, prompt, n):
    """Greedy decoding without a cache."""
    ids = prompt
    for _ in range(n):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], dim=1)
    return ids


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 9), st.integers(0, 12))
def test_greedy_generation_equals_recomputing(seed, batch, length, n):
    model, prompt = tiny(0).double(), ids_of(seed, batch, length)
    with torch.no_grad():
        assert torch.equal(generate(model, prompt, n), recomputed(model, prompt, n))


def test_greedy_generation_equals_transformers(tmp_path):
    model, prompt = tiny(1), ids_of(2, 3, 7)
    expected = theirs(model, tmp_path).generate(
        prompt, max_new_tokens=30, do_sample=False, attention_mask=torch.ones_like(prompt)
    )
    assert torch.equal(generate(model, prompt, 30), expected)


def test_the_end_token_ends_a_row_and_then_all():
    model, prompt = tiny(3), ids_of(4, 2, 5)
    free = generate(model, prompt, 30)[:, 5:]
    eos = int(free[0, 4])
    ended = generate(model, prompt, 30, eos_id=eos)[:, 5:]
    first = [(row == eos).nonzero()[:1].flatten().tolist() for row in free]
    lengths = [at[0] + 1 if at else 30 for at in first]
    assert ended.shape[1] == max(lengths)
    for row, plain, n in zip(ended, free, lengths, strict=True):
        assert torch.equal(row[:n], plain[:n]) and (row[n:] == eos).all()


def test_the_seed_decides_and_the_stream_is_the_generation():
    model, prompt, sampling = tiny(5), ids_of(6, 2, 5), Sampling(1.0, 20, 0.95)

    def run(seed):
        return generate(model, prompt, 20, sampling, torch.Generator().manual_seed(seed))

    cache, generator = KVCache(), torch.Generator().manual_seed(7)
    tokens = list(stream(model, prompt, 20, sampling, generator, cache=cache))
    assert torch.equal(run(7)[:, 5:], torch.stack(tokens, dim=1))
    assert not torch.equal(run(7), run(8))
    assert cache.length == 5 + 20 - 1  # the last token is never fed
    assert all(not t.requires_grad for t in tokens)


def test_a_second_turn_goes_on_from_the_cache():
    model, prompt, more = tiny(9), ids_of(10, 1, 5), ids_of(11, 1, 4)
    cache = KVCache()
    first = torch.stack(list(stream(model, prompt, 6, cache=cache)), dim=1)
    turn = torch.cat([first[:, -1:], more], dim=1)
    second = torch.stack(list(stream(model, turn, 6, cache=cache)), dim=1)
    whole = generate(model, torch.cat([prompt, first, more], dim=1), 6)
    assert torch.equal(second, whole[:, -6:])


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match=r"\(1, 0\)"):
        generate(tiny(0), torch.zeros(1, 0, dtype=torch.long), 3)
