"""Python lists and fsum, one value at a time."""

import bisect
import math

import torch


def kmeans_codebook(values, bits, iterations):
    numbers = values.double().flatten().tolist()
    lo, hi, size = min(numbers), max(numbers), 2**bits
    c = [lo + (hi - lo) * j / (size - 1) for j in range(size)]

    def assign():
        middles = [(a + b) / 2 for a, b in zip(c, c[1:], strict=False)]
        return [bisect.bisect_left(middles, v) for v in numbers]

    for _ in range(iterations):
        members = {}
        for v, j in zip(numbers, assign(), strict=True):
            members.setdefault(j, []).append(v)
        new = [
            math.fsum(members[j]) / len(members[j]) if j in members else c[j] for j in range(size)
        ]
        if new == c:
            break
        c = new
    return torch.tensor(c), torch.tensor(assign()).reshape(values.shape)
