"""The help, line by line."""

import math


def weight_bytes(shapes, bits, group_size):
    codes = sum(n * k * bits for n, k in shapes)
    groups = sum(n * math.ceil(k / group_size) for n, k in shapes) if bits != 16 else 0
    return (codes + groups * (16 + bits)) / 8


def decode_rate(weights, kv, flops, batch, bandwidth, peak):
    reading, computing = (weights + batch * kv) / bandwidth, batch * flops / peak
    return batch / max(reading, computing)


def ridge_batch(weights, kv, flops, bandwidth, peak):
    if kv / bandwidth >= flops / peak:
        return float("inf")
    return weights / bandwidth / (flops / peak - kv / bandwidth)
