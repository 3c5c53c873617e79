"""What the help and the hints say, taken as they stand."""

import torch


def recomputed(forward, ids, size):
    rows = []
    for t in range(len(ids)):
        window = ids[max(0, t + 1 - size) : t + 1]
        rows.append(forward(window[None])[0, -1])
    return torch.stack(rows)


def cost(way, tokens, size):
    if way == "dense":
        return tokens, tokens * (tokens + 1) // 2
    n = min(tokens, size)
    seen = n * (n + 1) // 2 + (tokens - n) * n
    if way == "window":
        return tokens, seen
    if way == "recompute":
        return seen, n * (n + 1) * (n + 2) // 6 + (tokens - n) * n * (n + 1) // 2
    raise ValueError(way)
