# Requests as small objects, a deque as the line, numpy for the link.
from collections import deque

import numpy as np


class One:
    def __init__(self, i, at, rows, left):
        self.i, self.at, self.rows, self.left, self.times = i, at, rows, left, []


def prefill_pool(arrivals, seconds, workers):
    busy, ends = [], []
    for at, takes in zip(arrivals, seconds, strict=True):
        busy.sort()
        begin = at if len(busy) < workers else max(at, busy.pop(0))
        busy.append(begin + takes)
        ends.append(begin + takes)
    return ends


def hand_over(ends, sizes, bandwidth):
    ready = np.zeros(len(ends))
    link = 0.0
    for i in np.argsort(np.array(ends, dtype=float), kind="stable"):
        link = max(link, ends[i]) + sizes[i] / bandwidth
        ready[i] = link
    return ready.tolist()


def decode_pool(ready, cached, left, most, step):
    everybody = [One(i, *row) for i, row in enumerate(zip(ready, cached, left, strict=True))]
    line = deque(sorted((r for r in everybody if r.left), key=lambda r: r.at))
    batch, now = [], 0.0
    while True:
        while line and len(batch) < most and line[0].at <= now:
            batch.append(line.popleft())
        if not batch:
            if not line:
                return [r.times for r in everybody]
            now = line[0].at
            continue
        now += step([r.rows for r in batch])
        for r in batch:
            r.times.append(now)
            r.rows, r.left = r.rows + 1, r.left - 1
        batch = [r for r in batch if r.left]
