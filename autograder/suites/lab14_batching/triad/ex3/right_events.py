# Percentiles by hand, the number inside from event to event, the knee by np.interp.
import numpy as np


def place(values, q):
    values = sorted(values)
    at = q * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] * (1 - (at - low)) + values[high] * (at - low)


def tails(log):
    rows = {"ttft": [], "tpot": []}
    for at, t in log:
        rows["ttft"].append(t[0] - at)
        if len(t) > 1:
            rows["tpot"].append((t[-1] - t[0]) / (len(t) - 1))
    return {k: [place(v, 0.5), place(v, 0.99)] if v else None for k, v in rows.items()}


def attained(log, ttft_limit, tpot_limit):
    late = 0
    for at, t in log:
        slow = len(t) > 1 and (t[-1] - t[0]) / (len(t) - 1) > tpot_limit
        late += t[0] - at > ttft_limit or slow
    return 1 - late / len(log)


def inside(log):
    events = sorted([(at, 1) for at, _ in log] + [(t[-1], -1) for _, t in log])
    begin = events[0][0]
    area, now, there = 0.0, begin, 0
    for at, change in events:
        area, now, there = area + there * (at - now), at, there + change
    return area / (now - begin)


def knee(points, goal):
    rates, shares = zip(*sorted(points), strict=True)
    bad = [i for i, share in enumerate(shares) if share < goal]
    if not bad:
        return rates[-1]
    if bad[0] == 0:
        return 0.0
    i = bad[0]
    return float(np.interp(goal, [shares[i], shares[i - 1]], [rates[i], rates[i - 1]]))
