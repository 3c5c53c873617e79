"""What steps moved and computed, how long a GPU would take for it, and a trace on such a clock.

    bytes   = weights + row (cached + new)                              over all requests of a step
    FLOPs   = token new + pair (new cached + new (new + 1) / 2) + head logits
    seconds = fixed + max( bytes / bandwidth, FLOPs / peak )

as in `efflib.traffic.simulate`, but that lm_head is counted for each logit that was wanted: none in
the middle of a prompt, one more for every proposal.  Counts come from a run of the engine with any
model; the machine says which model on which GPU would have done the same steps.  So a text of a
small model gives the work of a large one: the same for all, and the same again.

That is exact for what is counted, and leaves out what is not: time between kernels, sampling, the
network, kernels that reach less than the roofline.  And a large model accepts other proposals.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from efflib.engine.engine import Did, Engine
from efflib.engine.requests import Request
from efflib.serving.decoder import decoder
from efflib.serving.memory import FP16, W4, Format
from efflib.serving.metrics import Served
from efflib.serving.roofline import decode
from efflib.traffic.simulate import LLAMA_8B, Machine


class Bill(NamedTuple):
    """Of some steps, together."""

    passes: int
    read: int  # tokens that went through the model
    made: int  # tokens that came out
    bytes: float
    flops: float
    seconds: float


def llama_8b(weights: Format = FP16) -> Machine:
    """Llama-3.1-8B on an H100 with its matrices in this format; lm_head stays in 16 bits."""
    return LLAMA_8B._replace(weights=decode(decoder("llama-3.1-8b"), 0, weights).weights)


MACHINES = {"as_is": llama_8b(), "w4a16": llama_8b(W4)}


def step_bill(machine: Machine, did: Did) -> Bill:
    """Of one step."""
    new = sum(n for _, n, _ in did.work)
    cached = sum(c for _, _, c in did.work)
    pairs = sum(n * c + n * (n + 1) // 2 for _, n, c in did.work)
    moved = machine.weights + machine.row * (cached + new)
    flops = machine.token * new + machine.pair * pairs + machine.head * did.logits
    seconds = machine.fixed + max(moved / machine.bandwidth, flops / machine.peak)
    return Bill(1, new, did.tokens, moved, flops, seconds)


def bill(machine: Machine, log: Sequence[Did]) -> Bill:
    """Of all steps of a log."""
    each = [step_bill(machine, did) for did in log]
    return Bill(*(sum(column) for column in zip(*each, strict=True))) if each else Bill(*[0] * 6)


def serve(
    engine: Engine, trace: Sequence[tuple[float, Request]], seconds: Callable[[Did], float]
) -> list[Served]:
    """A trace of (arrival, request), in the order of arrival, on a clock of one's own.

    seconds: how long a step takes, asked right after it; the clock stands still meanwhile.
    Returns when each token was there, for `efflib.serving.metrics`.
    """
    now, coming = 0.0, list(trace)
    names: dict[int, int] = {}
    times: list[list[float]] = [[] for _ in trace]
    while coming or engine.busy:
        if not engine.busy:
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            names[engine.add(coming[0][1])] = len(trace) - len(coming)
            coming.pop(0)
        steps = len(engine.log)
        news = engine.step()
        if len(engine.log) > steps:
            now += seconds(engine.log[-1])
        for item in news:
            times[names[item.name]] += [now] * len(item.tokens)
    return [Served(at, tuple(when)) for (at, _), when in zip(trace, times, strict=True)]
