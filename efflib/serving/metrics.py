"""What a server's users wait for, and what it does per second, from a log of its tokens.

    TTFT        first token - arrival                    waiting in line, and reading the prompt
    ITL         each token - the one before it           one number a gap: the pauses that are seen
    TPOT        (last token - first) / (n - 1)           one number a request with n >= 2 tokens
    latency     last token - arrival = TTFT + (n - 1) TPOT
    throughput  tokens of all requests / span            span: first arrival to last token
    goodput     requests that kept all limits / span     the others' tokens count for nothing

The lecture has latency = TTFT + n TPOT, which counts the first token twice, unless its TPOT is
(last - arrival - TTFT) / n, which nobody reports.

A mean of ratios is not the ratio of means.  TPOT averages within a request first, so that a request
of 2 tokens counts as much as one of 2000; ITL weighs every gap equally.  Neither shows a pause of a
second in the middle of an answer: a high percentile of ITL does.  vLLM and SGLang report all of
them; goodput as in DistServe (Zhong et al. 2024, arXiv:2401.09670).
Percentiles are linear between the two neighbours, numpy's default.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple


class Served(NamedTuple):
    """One request of a log: times in seconds on one clock."""

    arrival: float
    tokens: tuple[float, ...]  # when each was there, in order
    finished: bool = True


class Times(NamedTuple):
    """Of one request, in seconds; None for what it does not have."""

    ttft: float | None
    tpot: float | None
    latency: float | None


class Summary(NamedTuple):
    """Of a log: means in seconds, None where there is nothing to average; rates per second."""

    ttft: float | None
    tpot: float | None
    itl: float | None
    itl_p99: float | None
    throughput: float  # tokens
    goodput: float  # requests


def served(log: Sequence[dict]) -> list[Served]:
    """A log of {"arrival", "times", "finished"} as tuples; finished unless it says otherwise."""
    return [Served(r["arrival"], tuple(r["times"]), r.get("finished", True)) for r in log]


def times(request: Served) -> Times:
    """TTFT, TPOT and latency of one request.

    Raises ValueError for tokens out of order, or a first one that is not later than the arrival.
    """
    arrival, tokens, finished = request
    if any(not a <= b for a, b in pairwise(tokens)):
        raise ValueError(f"tokens={tokens} must be in order")
    if not tokens:
        return Times(None, None, None)
    if not tokens[0] > arrival:
        raise ValueError(f"the first token, {tokens[0]}, must come after arrival={arrival}")
    n = len(tokens)
    tpot = (tokens[-1] - tokens[0]) / (n - 1) if n > 1 else None
    return Times(tokens[0] - arrival, tpot, tokens[-1] - arrival if finished else None)


def gaps(log: Sequence[Served]) -> list[float]:
    """Seconds between neighbouring tokens of a request, of all requests."""
    return [b - a for request in log for a, b in pairwise(request.tokens)]


def percentile(values: Sequence[float], q: float) -> float:
    """The value below which q % lie, at place q / 100 (n - 1) of the sorted ones, from 0.

    Raises ValueError without values, and unless 0 <= q <= 100.
    """
    if not values:
        raise ValueError("a percentile of no values")
    if not 0 <= q <= 100:
        raise ValueError(f"q={q} must be from 0 to 100")
    ranked = sorted(values)
    below, part = divmod(q / 100 * (len(ranked) - 1), 1)
    low, high = ranked[int(below)], ranked[min(int(below) + 1, len(ranked) - 1)]
    return low + part * (high - low)


def span(log: Sequence[Served]) -> float:
    """Seconds from the first arrival to the last token; inf if there is none."""
    ends = [request.tokens[-1] for request in log if request.tokens]
    return max(ends) - min(request.arrival for request in log) if ends else math.inf


def keeps(request: Served, ttft_limit: float, tpot_limit: float) -> bool:
    """Whether a request finished within both limits; with one token any TPOT is kept."""
    t = times(request)
    if t.latency is None or t.ttft is None:
        return False
    return t.ttft <= ttft_limit and (t.tpot is None or t.tpot <= tpot_limit)


def goodput(log: Sequence[Served], ttft_limit: float, tpot_limit: float) -> float:
    """Requests per second that finished within both limits."""
    return sum(keeps(request, ttft_limit, tpot_limit) for request in log) / span(log)


def throughput(log: Sequence[Served]) -> float:
    """Tokens per second of all requests, also of those that are too late or did not finish."""
    return sum(len(request.tokens) for request in log) / span(log)


def summarize(
    log: Sequence[Served], ttft_limit: float = math.inf, tpot_limit: float = math.inf
) -> Summary:
    """All of it.  TTFT and TPOT are means over the requests that have one, ITL over all gaps."""
    each = [times(request) for request in log]
    pauses = gaps(log)
    ttft, tpot = (_mean([getattr(t, name) for t in each]) for name in ("ttft", "tpot"))
    slow = percentile(pauses, 99) if pauses else None
    rates = throughput(log), goodput(log, ttft_limit, tpot_limit)
    return Summary(ttft, tpot, _mean(pauses), slow, *rates)


def _mean(values: Sequence[float | None]) -> float | None:
    there = [x for x in values if x is not None]
    return fmean(there) if there else None
