"""The share of values, times the number of weights: no exact number of bits."""

FAILS = ["test_limits_and_bits"]


def bitmap_bits(shape, kept, value_bits):
    total = shape[0] * shape[1]
    return int(total * (kept / total * value_bits + 1))
