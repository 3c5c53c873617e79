"""A server in discrete steps: a scheduler, a trace, and how long a step takes.

    step   = fixed + max( bytes / bandwidth, FLOPs / peak )
    bytes  = weights + row (cached + new),                 over all requests of the step
    FLOPs  = token new + pair (new cached + new (new + 1) / 2) + head

the roofline of a pass over unlike requests: weights are read once for all of them, everything else
is each one's own.  lm_head is counted for each request (a piece in the middle of a prompt would not
need it).  For equal requests this is `efflib.models.cost.step_cost` in `efflib.serving.limits`.

A scheduler is a function of plain values (`efflib.serving.schedulers`): what runs, what waits, and
how many blocks are free.  It says what the next step computes.  The clock moves by the step's
seconds; a request whose tokens are all computed then has one token more; who has all leaves.  Any
function of the work may say the seconds, one that really runs a model too (`efflib.models.ragged`).

Not in the clock: the scheduler's own time, sampling, detokenizing, the network; kernels that reach
less than the roofline.  `fixed` is the place for what they take.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from efflib.checks import expect_whole
from efflib.traffic.gates import Gate, dynamic, static

__all__ = [
    "LLAMA_8B",
    "Arrival",
    "Limits",
    "Machine",
    "Run",
    "clock",
    "dynamic",
    "simulate",
    "static",
]

Work = Sequence[tuple[int, int, int]]  # request, new, cached


class Arrival(NamedTuple):
    """A request: when it comes, in seconds, and tokens of its prompt and of its answer."""

    at: float
    prompt: int
    output: int


class Machine(NamedTuple):
    """A model on a machine: what a step moves and computes, and at which rates."""

    weights: float  # bytes, read once
    row: float  # bytes of the key and value of a token, in all layers
    token: float  # FLOPs of a token in all matrices of the layers
    pair: float  # FLOPs of a query that meets a key, in all layers
    head: float  # FLOPs of lm_head for one token
    bandwidth: float  # bytes per second
    peak: float  # FLOPs per second
    fixed: float = 0.0  # seconds of any step


# Llama-3.1-8B in 16 bits (15.0 GB without the token table, which is looked up) on an H100 SXM:
# dense rate in bf16 and bandwidth by its data sheet.  tests/serving hold it against the roofline.
LLAMA_8B = Machine(
    15009316864.0, 131072.0, 13958643712.0, 524288.0, 1050673152.0, 3.35e12, 989.4e12
)


def step_seconds(machine: Machine, work: Work) -> float:
    """Seconds of a step over (request, new, cached) tokens."""
    new = rows = twice = 0
    for _, n, cached in work:
        new += n
        rows += cached
        twice += n * (cached + cached + n + 1)  # pairs, times 2
    moved = machine.weights + machine.row * (new + rows)
    flops = machine.token * new + machine.pair * (twice / 2) + machine.head * len(work)
    return machine.fixed + max(moved / machine.bandwidth, flops / machine.peak)


def clock(machine: Machine) -> Callable[[Work], float]:
    """Seconds of a step as `simulate` asks for them."""
    return partial(step_seconds, machine)


class Limits(NamedTuple):
    """Of a server: tokens a step, requests at once, tokens a block, blocks."""

    budget: int = 8192
    most: int = 64
    block: int = 16
    blocks: int = 30_000  # 63 GB of an 8B model's cache in 16 bits


USUAL = Limits()


class Step(NamedTuple):
    """What happened in a step."""

    start: float
    seconds: float
    work: list[tuple[int, int, int]]  # request, new, cached
    waiting: int  # in line, after those that this step admits
    free: int  # blocks, after it
    put_back: tuple[int, ...]


class Run(NamedTuple):
    """A trace, served."""

    log: list[tuple[float, list[float]]]  # of each request: arrival, and when each token was there
    steps: list[Step]
    recomputed: int  # tokens that were computed again

    @property
    def seconds(self) -> float:
        """From the first arrival to the last token."""
        return max(times[-1] for _, times in self.log) - min(at for at, _ in self.log)

    @property
    def throughput(self) -> float:
        """Tokens of answers per second."""
        return sum(len(times) for _, times in self.log) / self.seconds


# ---- the server ----------------------------------------------------------------------------


class Server:
    """What `simulate` keeps: requests by their number, in the line or running, and their blocks."""

    def __init__(self, trace: Sequence[Arrival], limits: Limits, seconds: Callable) -> None:
        self.trace, self.limits, self.seconds = trace, limits, seconds
        self.coming = deque(sorted(range(len(trace)), key=lambda i: trace[i].at))
        self.waiting: list[tuple[int, int]] = []  # request, tokens
        self.running: dict[int, list[int]] = {}  # request -> [tokens, cached]
        self.free, self.now = limits.blocks, 0.0
        self.times: list[list[float]] = [[] for _ in trace]
        self.steps: list[Step] = []
        self.recomputed = 0

    def held(self, cached: int) -> int:
        return -(-cached // self.limits.block)

    def arrive(self) -> None:
        """Who has come by now joins the line."""
        while self.coming and self.trace[self.coming[0]].at <= self.now:
            i = self.coming.popleft()
            self.waiting.append((i, self.trace[i].prompt))

    def back(self, names: Sequence[int], line_after: Callable) -> None:
        """These lose their cache, and stand in the line where line_after says."""
        state = [(i, *entry) for i, entry in self.running.items()]
        self.waiting = list(line_after(state, list(self.waiting), list(names)))
        for i in names:
            _, cached = self.running.pop(i)
            self.free += self.held(cached)
            self.recomputed += cached

    def compute(self, work: Sequence[tuple[int, int]], put_back: Sequence[int]) -> None:
        """One step: the clock moves, tokens come, who is done leaves."""
        entering = {i for i, _ in work} - self.running.keys()
        if entering:
            for i, tokens in self.waiting:
                if i in entering:
                    self.running[i] = [tokens, 0]
            self.waiting = [pair for pair in self.waiting if pair[0] not in entering]
        done = [(i, n, self.running[i][1]) for i, n in work]
        start, spent = self.now, self.seconds(done)
        self.now += spent
        block, running, now = self.limits.block, self.running, self.now
        for i, n, cached in done:
            entry, after = running[i], cached + n
            self.free += -after // block - -cached // block
            entry[1] = after
            if after == entry[0]:
                entry[0] = after + 1
                times = self.times[i]
                times.append(now)
                if len(times) == self.trace[i].output:
                    self.free += self.held(after)
                    del running[i]
        self.steps.append(Step(start, spent, done, len(self.waiting), self.free, tuple(put_back)))


def simulate(
    trace: Sequence[Arrival],
    schedule: Callable,
    seconds: Callable[[Work], float],
    limits: Limits = USUAL,
    gate: Gate | None = None,
    line_after: Callable | None = None,
) -> Run:
    """Serves a trace to its end.

    schedule(running, waiting, free, budget, most, block) -> work, or (work, put_back) where
    line_after(running, waiting, put_back) -> waiting is given.
    Raises ValueError for a request that does not fit into memory or, where prompts are not cut,
    into a step, as soon as nothing more can happen.
    """
    expect_whole(1, **limits._asdict())
    server, stalls = Server(trace, limits, seconds), 0
    while server.coming or server.waiting or server.running:
        server.arrive()
        shut = _closed(server, gate)
        view = [] if shut else server.waiting[: limits.most]
        state = [(i, tokens, cached) for i, (tokens, cached) in server.running.items()]
        answer = schedule(state, view, server.free, limits.budget, limits.most, limits.block)
        work, put_back = answer if line_after else (answer, [])
        if put_back:
            server.back(put_back, line_after)
        if work:
            server.compute(work, put_back)
            stalls = 0
            continue
        stalls += 1
        later = [server.trace[server.coming[0]].at] if server.coming else []
        later += [server.now + shut] if 0 < shut < math.inf and server.waiting else []
        if later:
            server.now = max(server.now, min(later))
        elif stalls > 2:
            raise ValueError(f"nothing more can run: {state[:3]} run, {server.waiting[:3]} wait")
    log = [(arrival.at, times) for arrival, times in zip(trace, server.times, strict=True)]
    return Run(log, server.steps, server.recomputed)


def _closed(server: Server, gate: Gate | None) -> float:
    """For how many seconds nobody may join."""
    if gate is None:
        return 0.0
    waited = server.now - server.trace[server.waiting[0][0]].at if server.waiting else 0.0
    return gate(len(server.running), len(server.waiting), waited, bool(server.coming))


def counts(run: Run) -> Mapping[str, float]:
    """Of a run: steps, mean tokens and requests a step, the largest step, tokens computed again."""
    tokens = [sum(n for _, n, _ in step.work) for step in run.steps]
    return {
        "steps": len(run.steps),
        "tokens a step": sum(tokens) / len(tokens),
        "requests a step": sum(len(step.work) for step in run.steps) / len(run.steps),
        "largest step": max(tokens),
        "computed again": run.recomputed,
    }
