"""The map is forgotten."""

FAILS = ["test_bits", "test_limits_and_bits"]


def bitmap_bits(shape, kept, value_bits):
    return kept * value_bits
