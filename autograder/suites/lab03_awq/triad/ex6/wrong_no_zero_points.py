"""Scales are counted, zero points are not."""

import math

FAILS = ["test_bytes_by_hand", "test_bytes_by_counting"]


def weight_bytes(shapes, bits, group_size):
    total = 0
    for n, k in shapes:
        total += n * k * bits
        if bits < 16:
            total += n * math.ceil(k / group_size) * (16)
    return total / 8
