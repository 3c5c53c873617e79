"""36 bits for four weights, whatever a value takes."""

FAILS = ["test_limits_and_bits", "test_bits"]


def stored_bits(shape, value_bits):
    return shape[0] * shape[1] // 4 * 36
