""" "channel" counts K scales."""

import math

FAILS = ["test_bits_by_hand", "test_sizes_by_counting"]


def weight_bits(shape, bits, granularity, symmetric):
    n, k = shape
    size = {"tensor": n * k, "channel": 1}.get(granularity, granularity)
    groups = 1 if granularity == "tensor" else n * math.ceil(k / size)
    if granularity == "channel":
        groups = k
    return n * k * bits + groups * (16 if symmetric else 16 + bits)
