"""Counts the codes only: "4-bit" taken at its word."""

FAILS = ["test_bits_by_hand", "test_sizes_by_counting"]


def weight_bits(shape, bits, granularity, symmetric):
    return shape[0] * shape[1] * bits
