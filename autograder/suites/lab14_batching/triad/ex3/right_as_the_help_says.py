# Bars, a line between two points, numpy's percentiles.
import numpy as np


def tails(log):
    first = [t[0] - at for at, t in log]
    per_token = [(t[-1] - t[0]) / (len(t) - 1) for at, t in log if len(t) >= 2]

    def pair(values):
        return tuple(np.percentile(values, [50, 99])) if values else None

    return {"ttft": pair(first), "tpot": pair(per_token)}


def attained(log, ttft_limit, tpot_limit):
    def keeps(at, t):
        if t[0] - at > ttft_limit:
            return False
        return len(t) == 1 or (t[-1] - t[0]) / (len(t) - 1) <= tpot_limit

    return np.mean([keeps(at, t) for at, t in log])


def inside(log):
    area = sum(t[-1] - at for at, t in log)
    return area / (max(t[-1] for _, t in log) - min(at for at, _ in log))


def knee(points, goal):
    points = sorted(points)
    low = None
    for rate, share in points:
        if share < goal:
            if low is None:
                return 0.0
            return low[0] + (low[1] - goal) / (low[1] - share) * (rate - low[0])
        low = (rate, share)
    return float(low[0])
