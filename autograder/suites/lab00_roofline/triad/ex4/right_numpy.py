"""numpy.diff and numpy.percentile."""

import numpy as np


def timings(request):
    clock = np.array([request["arrival"], *request["times"]], dtype=np.float64)
    steps = np.diff(clock)
    if len(steps) and (steps[0] <= 0 or (steps < 0).any()):
        raise ValueError(f"a clock that runs backwards: {clock}")
    done = bool(len(steps)) and request["finished"]
    return {
        "ttft": float(steps[0]) if len(steps) else None,
        "tpot": float(steps[1:].mean()) if len(steps) > 1 else None,
        "latency": float(clock[-1] - clock[0]) if done else None,
    }


def percentile(values, q):
    if not len(values) or not 0 <= q <= 100:
        raise ValueError(f"percentile {q} of {values}")
    return float(np.percentile(np.array(values, dtype=np.float64), q))


def summarize(log, ttft_limit, tpot_limit):
    rows = list(map(timings, log))
    gaps = np.concatenate([np.zeros(0), *(np.diff(r["times"]) for r in log if r["times"])])
    every = np.concatenate([np.zeros(0), *(np.array(r["times"]) for r in log)])

    def mean(values):
        values = [v for v in values if v is not None]
        return float(np.mean(values)) if values else None

    good = [
        row["ttft"] <= ttft_limit and (row["tpot"] is None or row["tpot"] <= tpot_limit)
        for row in rows
        if row["latency"] is not None
    ]
    rates = [0.0, 0.0]
    if every.size:
        took = float(every.max()) - min(request["arrival"] for request in log)
        rates = [every.size / took, sum(good) / took]
    return {
        "ttft": mean(row["ttft"] for row in rows),
        "tpot": mean(row["tpot"] for row in rows),
        "itl": mean(gaps.tolist()),
        "itl_p99": percentile(gaps.tolist(), 99) if gaps.size else None,
        "throughput": rates[0],
        "goodput": rates[1],
    }
