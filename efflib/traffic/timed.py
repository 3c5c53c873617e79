"""A server with a clock: requests in, the time of every token out.

The server is the simplest that batches: while fewer than `most` requests run and somebody waits,
the first in line has its prompt read in a pass of its own, which gives its first token; else all
that run get their next token in one pass.  So every prompt is a pause for all others, which is what
chunked prefill is for.  How long a pass takes is a function of the caller.
Source: the oldest schedule of continuous batching, Yu et al. 2022, "Orca" (OSDI), section 3.2, with
prompts kept apart.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from efflib.checks import expect_whole


class Wanted(NamedTuple):
    """A request: seconds at which it arrives, tokens of its prompt and of its answer."""

    arrival: float
    prompt: int
    output: int


def arrivals(requests: int, per_second: float, seed: int = 0) -> list[float]:
    """Times of independent arrivals; at another rate the same ones, closer or wider.

    Raises ValueError for per_second <= 0.
    """
    expect_whole(1, requests=requests)
    if not per_second > 0:
        raise ValueError(f"per_second={per_second!r} must be above 0")
    random, now, times = Random(seed), 0.0, []
    for _ in range(requests):
        now += random.expovariate(1) / per_second
        times.append(now)
    return times


def serve(
    trace: Sequence[Wanted],
    prompt_seconds: Callable[[int], float],
    step_seconds: Callable[[list[int]], float],
    most: int,
) -> list[dict]:
    """The log: {"arrival", "times", "finished"} of each request, in the order of the trace.

    prompt_seconds(tokens): of the pass over a prompt; step_seconds(cached): of a pass that makes a
    token for each running request, with so many tokens cached.  Raises ValueError for most < 1,
    and for requests without prompt or answer.
    """
    expect_whole(1, most=most)
    log = []
    for wanted in trace:
        expect_whole(1, prompt=wanted.prompt, output=wanted.output)
        log.append({"arrival": wanted.arrival, "times": [], "finished": False})
    waiting = deque(sorted(range(len(trace)), key=lambda i: trace[i].arrival))
    running, now = [], 0.0
    while waiting or running:
        if not running:
            now = max(now, trace[waiting[0]].arrival)
        if waiting and len(running) < most and trace[waiting[0]].arrival <= now:
            running.append(i := waiting.popleft())
            now += prompt_seconds(trace[i].prompt)
            served = [i]
        else:
            now += step_seconds([trace[i].prompt + len(log[i]["times"]) - 1 for i in running])
            served = running
        for i in served:
            log[i]["times"].append(now)
            log[i]["finished"] = len(log[i]["times"]) == trace[i].output
        running = [i for i in running if not log[i]["finished"]]
    return log
