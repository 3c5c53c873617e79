"""Counted in bits; the rate as the smaller of two rates; the ridge from their equality."""

import math


def weight_bytes(shapes, bits, group_size):
    groups = sum(n * (-(-k // group_size)) for n, k in shapes)
    codes = sum(n * k for n, k in shapes)
    return (bits * codes + (0 if bits == 16 else 16 + bits) * groups) / 8


def decode_rate(weights, kv, flops, batch, bandwidth, peak):
    moved = weights + batch * kv
    by_reading = batch * bandwidth / moved if moved else math.inf
    return min(by_reading, peak / flops)


def ridge_batch(weights, kv, flops, bandwidth, peak):
    computing = flops * bandwidth - kv * peak
    return math.inf if computing <= 0 else weights * peak / computing
