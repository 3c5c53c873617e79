"""R values wait, even if fewer have come."""

FAILS = ["test_bits_and_waiting", "test_bits_held_by_counting"]


def waiting(tokens, residual):
    return tokens % residual, residual
