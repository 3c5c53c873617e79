"""ceil(N K / G) groups, as if they ran on from row to row."""

import math

FAILS = ["test_bits_by_hand", "test_sizes_by_counting"]


def weight_bits(shape, bits, granularity, symmetric):
    n, k = shape
    size = {"tensor": n * k, "channel": k}.get(granularity, granularity)
    groups = 1 if granularity == "tensor" else math.ceil(n * k / size)
    return n * k * bits + groups * (16 if symmetric else 16 + bits)
