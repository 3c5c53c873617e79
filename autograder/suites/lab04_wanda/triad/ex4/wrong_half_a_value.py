"""Bits of half a value and its place for each weight: wrong where value_bits is odd."""

FAILS = ["test_limits_and_bits"]


def stored_bits(shape, value_bits):
    return shape[0] * shape[1] * (value_bits // 2 + 1)
