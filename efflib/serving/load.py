"""What many users get, at one rate of arrival and over all of them.

    tails      p50 and p99 of TTFT and TPOT
    attained   the share of requests that keep a limit of TTFT and one of TPOT
    inside     requests in the server, on average over time: Little's law, L = lambda W
    knee       the highest rate at which at least `goal` of the requests keep both limits

A log is [(arrival, times)], times those of every token (`efflib.traffic.simulate.Run.log`); metrics
of a request are those of `efflib.serving.metrics`.  Goodput at a rate is rate x attained; at the
knee it is what one machine serves, the measure of DistServe (Zhong et al. 2024, arXiv:2401.09670).
Little (1961): a request is inside for its latency, so the integral of how many are inside over time
is the sum of latencies, whatever the order in which they are served.
"""

from collections.abc import Sequence

from efflib.serving.metrics import Served, Times, keeps, percentile, times

Log = Sequence[tuple[float, Sequence[float]]]


def _each(log: Log) -> list[Times]:
    return [times(Served(arrival, tuple(tokens))) for arrival, tokens in log]


def tails(log: Log) -> dict[str, tuple[float, float] | None]:
    """{"ttft": (p50, p99), "tpot": (p50, p99)} in seconds; None where no request has one."""
    each = _each(log)
    columns = {name: [getattr(t, name) for t in each] for name in ("ttft", "tpot")}
    there = {name: [x for x in column if x is not None] for name, column in columns.items()}
    return {
        name: (percentile(values, 50), percentile(values, 99)) if values else None
        for name, values in there.items()
    }


def attained(log: Log, ttft_limit: float, tpot_limit: float) -> float:
    """The share of requests within both limits."""
    kept = [keeps(Served(at, tuple(tokens)), ttft_limit, tpot_limit) for at, tokens in log]
    return sum(kept) / len(kept)


def inside(log: Log) -> float:
    """Requests in the server, averaged over the time from the first arrival to the last token."""
    start, end = min(at for at, _ in log), max(tokens[-1] for _, tokens in log)
    return sum(tokens[-1] - at for at, tokens in log) / (end - start)


def knee(points: Sequence[tuple[float, float]], goal: float) -> float:
    """The rate up to which all (rate, share) have share >= goal, on straight lines between them.

    0.0 if the lowest rate is below the goal already, the highest one if none is.
    """
    good, kept = 0.0, None
    for rate, share in sorted(points):
        if share < goal:
            part = 0.0 if kept is None else (kept - goal) / (kept - share)
            return good + part * (rate - good)
        good, kept = rate, share
    return good
