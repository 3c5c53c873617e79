"""16-bit weights get scales too."""

import math

FAILS = ["test_bytes_by_hand", "test_bytes_by_counting"]


def weight_bytes(shapes, bits, group_size):
    total = 0
    for n, k in shapes:
        total += n * k * bits
        if bits > 0:
            total += n * math.ceil(k / group_size) * (16 + bits)
    return total / 8
