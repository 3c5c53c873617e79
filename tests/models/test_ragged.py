"""Many sequences in a pass, against each alone; a scheduler that drives the shipped model."""

import pytest
import torch

from efflib import zoo
from efflib.models.cache import KVCache
from efflib.models.ragged import Engine, fit, fitted_clock, ragged_pass
from efflib.serving.schedulers import line_after, mixed_chunks, preempting, prefill_first
from efflib.traffic.simulate import Arrival, Limits, dynamic, simulate, static


@pytest.fixture(scope="module")
def model():
    return zoo.load("target")


def prompts_of(sizes):
    g = torch.Generator().manual_seed(0)
    return [torch.randint(3, 2000, (n,), generator=g) for n in sizes]


@torch.no_grad()
def test_each_sequence_as_if_it_were_alone(model):
    texts = prompts_of((5, 1, 19))
    caches = [KVCache() for _ in texts]
    for part in (slice(0, 1), slice(1, 4), slice(4, 99)):
        there = [i for i, ids in enumerate(texts) if len(ids[part])]
        logits = ragged_pass(model, [texts[i][part] for i in there], [caches[i] for i in there])
        for i, row in zip(there, logits, strict=True):
            alone = model(texts[i][: part.stop][None])[0, -1]
            torch.testing.assert_close(row, alone, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_all_schedulers_write_what_generation_alone_writes(model):
    sizes, wanted = (9, 14, 3, 20, 6), (7, 3, 12, 5, 9)
    prompts = prompts_of(sizes)
    alone = []
    for ids, n in zip(prompts, wanted, strict=True):
        cache, new = KVCache(), ids[None]
        for _ in range(n):
            token = model(new, cache=cache)[:, -1].argmax(-1, keepdim=True)
            ids, new = torch.cat([ids, token[0]]), token
        alone.append(ids.tolist())
    trace = [Arrival(0.001 * i, p, n) for i, (p, n) in enumerate(zip(sizes, wanted, strict=True))]
    for schedule, limits, gate, back in (
        (prefill_first, Limits(999, 2, 4, 99), None, None),
        (mixed_chunks, Limits(5, 4, 4, 99), None, None),
        (preempting, Limits(6, 4, 4, 9), None, line_after),
        (prefill_first, Limits(999, 2, 4, 99), static(2), None),
        (prefill_first, Limits(999, 2, 4, 99), dynamic(2, 0.1), None),
    ):
        engine = Engine(model, prompts)
        run = simulate(trace, schedule, engine, limits, gate, back)
        assert [text.tolist() for text in engine.texts] == alone
        assert bool(run.recomputed) == (back is not None)


def test_a_fit_finds_what_made_the_numbers():
    cases = [(1, 1, 9), (4, 1, 9), (16, 1, 50), (1, 40, 0), (3, 20, 7), (2, 1, 200)]
    clock = fitted_clock((2.0, 0.5, 0.01, 0.001))
    found = fit(cases, [clock([(0, n, k)] * r) for r, n, k in cases])
    assert found == pytest.approx((2.0, 0.5, 0.01, 0.001))
    free = fitted_clock((2.0, 0.0, 0.01, 0.001))
    found = fit(cases, [free([(0, n, k)] * r) - 1e-3 * r for r, n, k in cases])
    assert found[1] == 0 and found[0] == pytest.approx(2.0, rel=0.01)
