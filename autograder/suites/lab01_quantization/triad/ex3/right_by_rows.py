"""A loop over rows and groups, sizes from the groups that were seen."""

import torch


def _groups(n, k, granularity):
    if granularity == "tensor":
        return [(slice(0, n), slice(0, k))]
    if granularity == "channel":
        granularity = k
    if not isinstance(granularity, int) or granularity < 1:
        raise ValueError(granularity)
    return [
        (slice(i, i + 1), slice(j, min(j + granularity, k)))
        for i in range(n)
        for j in range(0, k, granularity)
    ]


def quantize_weight(w, bits, granularity, symmetric):
    out = torch.empty(w.shape, dtype=torch.float32)
    for where in _groups(*w.shape, granularity):
        part = w[where].float()
        low, high = (0.0, 0.0) if symmetric else (part.min().item(), part.max().item())
        low, high = min(low, 0.0), max(high, 0.0)
        steps = 2 ** (bits - 1) - 1 if symmetric else 2**bits - 1
        width = part.abs().max().item() if symmetric else high - low
        scale = width / steps if width else 1.0
        zero = round(-low / scale)
        first = -steps if symmetric else 0
        out[where] = ((part / scale).round() + zero).clamp(first, steps).sub(zero).mul(scale)
    return out


def weight_bits(shape, bits, granularity, symmetric):
    per_group = 16 if symmetric else 16 + bits
    return shape[0] * shape[1] * bits + per_group * len(_groups(*shape, granularity))
