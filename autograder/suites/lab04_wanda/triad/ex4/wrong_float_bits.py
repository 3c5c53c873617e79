"""A division makes the bits a float."""

FAILS = ["test_bits"]


def bitmap_bits(shape, kept, value_bits):
    n, k = shape
    return n * k * (value_bits * kept / (n * k) + 1)
