"""Half of the weights, however many are kept."""

FAILS = ["test_bits", "test_limits_and_bits"]


def bitmap_bits(shape, kept, value_bits):
    return shape[0] * shape[1] * value_bits // 2 + shape[0] * shape[1]
