"""Counted work against the counts of a single pass and of the simulator."""

import random

import pytest

from efflib.engine.bills import MACHINES, bill, llama_8b, serve, step_bill
from efflib.engine.engine import Did, Engine, Sizes
from efflib.engine.proposals import Lookup
from efflib.engine.requests import Request
from efflib.serving.memory import W4
from efflib.serving.schedulers import line_after, preempting
from efflib.traffic.simulate import Arrival, Limits, clock, simulate

MACHINE = MACHINES["as_is"]


def asked(n: int) -> list[tuple[float, Request]]:
    return [(i * 0.013, Request(tuple(range(1 + 5 * (i % 4), 20)), 3 + 4 * i)) for i in range(n)]


def test_a_step_that_decodes_is_the_simulators():
    did = Did([(0, 1, 100), (1, 1, 7)], logits=2, tokens=2)
    assert step_bill(MACHINE, did).seconds == clock(MACHINE)(did.work)


def test_four_bits_leave_the_token_table_in_sixteen():
    matrices = 8.03e9 - 2 * 128256 * 4096
    saved = MACHINE.weights - llama_8b(W4).weights
    assert saved == pytest.approx(matrices * (16 - 4.15625) / 8, rel=1e-3)


def test_without_proposals_the_clock_is_that_of_the_simulator(model):
    """One scheduler, one trace, in memory that is short: the same tokens at the same times.

    lm_head is left out, which the two count differently.
    """
    draw = random.Random(3)
    trace = [
        (i * 0.013, Request(tuple(draw.choices(range(61), k=draw.randint(1, 20))), 3 + 4 * i))
        for i in range(9)
    ]
    machine, block = MACHINE._replace(head=0.0), 19
    engine = Engine(model, Sizes(blocks=8, block=block, budget=16, most=6))
    engine.cache.settle = lambda *_: None  # nothing is found again: the simulator knows no texts
    found = serve(engine, trace, lambda did: step_bill(machine, did).seconds)
    arrivals = [Arrival(at, len(r.prompt), r.max_tokens) for at, r in trace]
    limits = Limits(budget=16, most=6, block=block, blocks=8)
    want = simulate(arrivals, preempting, clock(machine), limits, line_after=line_after)
    assert engine.put_back == sum(len(step.put_back) for step in want.steps) > 0
    for (at, times), served in zip(want.log, found, strict=True):
        assert served.arrival == at and list(served.tokens) == pytest.approx(times)


def test_a_bill_counts_every_token_once(model):
    engine = Engine(model, Sizes(blocks=200, block=4), proposer=Lookup())
    found = serve(engine, asked(6), lambda did: 0.01)
    total = bill(MACHINE, engine.log)
    assert total.passes == len(engine.log)
    assert total.made == sum(len(s.tokens) for s in found) == sum(r.max_tokens for _, r in asked(6))
    prompts = sum(len(r.prompt) for _, r in asked(6))
    kept = prompts - engine.found + total.made - 6  # the last token of an answer is never read
    assert kept <= total.read <= kept + engine.proposed
    assert total.seconds == pytest.approx(sum(step_bill(MACHINE, d).seconds for d in engine.log))
    assert bill(MACHINE, []).passes == 0
