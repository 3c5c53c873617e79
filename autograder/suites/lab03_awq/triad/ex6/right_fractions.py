"""Exact fractions, and a rate from the reciprocals of the bounds."""

import math
from fractions import Fraction


def weight_bytes(shapes, bits, group_size):
    total = Fraction(0)
    for n, k in shapes:
        total += Fraction(n * k * bits, 8)
        groups = n * -(-k // group_size)
        total += 0 if bits == 16 else Fraction(groups * (16 + bits), 8)
    return float(total)


def decode_rate(weights, kv, flops, batch, bandwidth, peak):
    bytes_per_token = weights / batch + kv
    by_memory = bandwidth / bytes_per_token if bytes_per_token else math.inf
    return min(by_memory, peak / flops)


def ridge_batch(weights, kv, flops, bandwidth, peak):
    per_sequence = flops * bandwidth - kv * peak
    return math.inf if per_sequence <= 0 else weights * peak / per_sequence
