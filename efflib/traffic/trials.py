"""Experiments with schedulers: what lab 14's notebook and its chapter run, on functions of theirs.

A server is (scheduler, gate or None, tokens a step).  Nothing here decides what a step computes.
"""

from collections.abc import Callable, Sequence

import torch

from efflib import zoo
from efflib.traffic.arrivals import bursts, draw_lengths, poisson
from efflib.traffic.simulate import LLAMA_8B, Arrival, Limits, Run, clock, simulate
from efflib.traffic.traces import Lengths

ANY = 10**9  # tokens a step: no limit
NVLINK = 450e9  # bytes per second, one way
Log = list[tuple[float, list[float]]]
Server = tuple[Callable, Callable | None, int]


def serve(
    schedule: Callable,
    trace: Sequence[Arrival],
    gate: Callable | None = None,
    seconds: Callable | None = None,
    back: Callable | None = None,
    budget: int = ANY,
    most: int = 64,
    blocks: int = 30_000,
) -> Run:
    """A trace served on the simulated GPU; back: the scheduler's line_after, if it preempts."""
    limits = Limits(budget, most, 16, blocks)
    return simulate(trace, schedule, seconds or clock(LLAMA_8B), limits, gate, back)


def stands_still(schedule: Callable, trace: Sequence[Arrival], **limits) -> bool:
    """Whether a server comes to a point where nobody who runs or waits can go on."""
    try:
        serve(schedule, trace, **limits)
    except ValueError:
        return True
    return False


def curve(
    server: Server,
    rates: Sequence[float],
    lengths: Sequence[tuple[int, int]],
    come: Callable = poisson,
    seconds: Callable | None = None,
) -> list[tuple[float, Log]]:
    """(rate, log) at each rate, of the same requests."""
    schedule, gate, budget = server
    return [
        (rate, serve(schedule, come(rate, lengths), gate, seconds, budget=budget).log)
        for rate in rates
    ]


def in_eights(rate: float, lengths: Sequence[tuple[int, int]], seed: int = 0) -> list[Arrival]:
    """Bursts of eight requests."""
    return bursts(rate, lengths, 8, seed)


def in_turn(work: Sequence[tuple[int, int, int]]) -> float:
    """Seconds of a step that first reads all of its bytes, and then computes: nothing overlaps."""
    m, new = LLAMA_8B, sum(n for _, n, _ in work)
    read = m.weights + m.row * sum(n + cached for _, n, cached in work)
    met = sum(n * (cached + (n + 1) / 2) for _, n, cached in work)
    return read / m.bandwidth + (m.token * new + m.pair * met + m.head * len(work)) / m.peak


def middle(values: Sequence[float]) -> float:
    """The upper median."""
    return sorted(values)[len(values) // 2]


def waits(log: Log) -> list[float]:
    """Seconds of each request to its first token."""
    return [times[0] - arrival for arrival, times in log]


def pair_of(server: Server, machines: int = 2) -> Callable:
    """(trace, seconds) -> the log of equal servers that get the requests in turn."""
    schedule, gate, budget = server

    def log_of(trace: Sequence[Arrival], seconds: Callable) -> Log:
        log = [None] * len(trace)
        for i in range(machines):
            log[i::machines] = serve(schedule, trace[i::machines], gate, seconds, budget=budget).log
        return log

    return log_of


def pools_of(
    prefill_pool: Callable,
    hand_over: Callable,
    decode_pool: Callable,
    readers: int = 1,
    writers: int = 1,
    link: float = NVLINK,
) -> Callable:
    """(trace, seconds) -> the log of two pools, made of these functions.

    64 requests may be decoded at once for each machine of both pools, as in `pair_of`.
    """

    def log_of(trace: Sequence[Arrival], seconds: Callable) -> Log:
        alone = [seconds([(0, r.prompt, 0)]) for r in trace]
        read = prefill_pool([r.at for r in trace], alone, readers)
        there = hand_over(read, [LLAMA_8B.row * r.prompt for r in trace], link)
        most, log = 64 * (readers + writers) // writers, [None] * len(trace)
        for first in range(writers):
            mine = range(first, len(trace), writers)
            rows = [[there[i], trace[i].prompt, trace[i].output - 1] for i in mine]
            columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
            step = _decoding(seconds)
            for i, later in zip(mine, decode_pool(*columns, most, step), strict=True):
                log[i] = (trace[i].at, [read[i], *later])
        return log

    return log_of


def _decoding(seconds: Callable) -> Callable[[list[int]], float]:
    """Seconds of a step that makes a token behind each of so many."""
    return lambda rows: seconds([(0, 1, n) for n in rows])


def live_requests(requests: int = 24, rate: float = 30) -> tuple[list[torch.Tensor], list[Arrival]]:
    """(prompts, trace) of short requests to the shipped model, all beginnings of one text."""
    words = zoo.load_tokenizer().encode(zoo.PROMPTS[1] * 6).ids
    text = torch.tensor([zoo.BEGIN_ID, *words])
    drawn = draw_lengths(requests, Lengths(40, 0.6, 90), Lengths(24, 0.7, 80))
    pairs = [(min(prompt, len(text)), output) for prompt, output in drawn]
    return [text[:prompt] for prompt, _ in pairs], poisson(rate, pairs)


# steps (requests, new, cached) from which a clock is fitted
LIVE_CASES = (
    (1, 1, 32), (2, 1, 80), (4, 1, 48), (8, 1, 24), (8, 1, 100), (1, 24, 0), (1, 80, 0),
    (4, 40, 0), (8, 6, 30), (8, 40, 0), (3, 8, 60),
)  # fmt: skip
