"""A zero point is paid for on a symmetric grid as well."""

import math

FAILS = ["test_bits_by_hand", "test_sizes_by_counting"]


def weight_bits(shape, bits, granularity, symmetric):
    n, k = shape
    size = k if granularity == "channel" else granularity
    groups = 1 if granularity == "tensor" else n * math.ceil(k / size)
    return n * k * bits + groups * (16 + bits)
