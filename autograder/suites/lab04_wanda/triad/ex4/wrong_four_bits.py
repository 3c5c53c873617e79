"""Four bits for every place."""

FAILS = ["test_limits_and_bits", "test_bits"]


def stored_bits(shape, value_bits):
    return shape[0] * shape[1] // 2 * (value_bits + 4)
