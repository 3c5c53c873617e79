"""A class of running sums, and percentiles by torch."""

import math

import torch


class _Mean:
    def __init__(self):
        self.values = []

    def add(self, value):
        self.values += [] if value is None else [value]

    def get(self):
        return math.fsum(self.values) / len(self.values) if self.values else None


def timings(request):
    before, gaps = request["arrival"], []
    for number, now in enumerate(request["times"]):
        if now < before or (number == 0 and now == before):
            raise ValueError(f"token {number} at {now}, behind {before}")
        gaps.append(now - before)
        before = now
    ended = gaps and request["finished"]
    return dict(
        ttft=gaps[0] if gaps else None,
        tpot=math.fsum(gaps[1:]) / len(gaps[1:]) if gaps[1:] else None,
        latency=math.fsum(gaps) if ended else None,
    )


def percentile(values, q):
    if len(values) < 1 or q < 0 or q > 100:
        raise ValueError("percentile")
    at = torch.tensor(values, dtype=torch.float64)
    return torch.quantile(at, q / 100).item()


def summarize(log, ttft_limit, tpot_limit):
    means = {name: _Mean() for name in ("ttft", "tpot", "itl")}
    first, last, tokens, good = math.inf, -math.inf, 0, 0
    for request in log:
        own = timings(request)
        means["ttft"].add(own["ttft"])
        means["tpot"].add(own["tpot"])
        times = request["times"]
        for a, b in zip(times[:-1], times[1:], strict=True):
            means["itl"].add(b - a)
        first, last = min(first, request["arrival"]), max([last, *times])
        tokens += len(times)
        slow = own["latency"] is None or own["ttft"] > ttft_limit
        good += not (slow or (own["tpot"] is not None and own["tpot"] > tpot_limit))
    gaps = means["itl"].values
    found = {name: mean.get() for name, mean in means.items()}
    found["itl_p99"] = percentile(gaps, 99) if gaps else None
    found["throughput"] = tokens / (last - first) if tokens else 0.0
    found["goodput"] = good / (last - first) if tokens else 0.0
    return found
