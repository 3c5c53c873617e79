"""In float32, but for the differences; the statistics module."""

import math
import statistics

import torch


def stream_losses(step, ids):
    columns = []
    for t in range(1, ids.shape[1]):
        p = step(ids[:, t - 1 : t]).squeeze(1).to(torch.float32)
        p = p - p.logsumexp(-1, keepdim=True)
        columns.append(-p[torch.arange(len(ids)), ids[:, t]])
    return torch.stack(columns).T.contiguous()


def compare(a, b):
    if a.ndim != 2 or a.shape != b.shape or a.shape[0] < 2:
        raise ValueError("not two of one shape")
    rows = (a - b).float().mean(dim=1).tolist()
    m = statistics.fmean(rows)
    se = statistics.stdev(rows) / math.sqrt(len(rows))
    return math.exp(m), math.exp(m - 2 * se), math.exp(m + 2 * se)
