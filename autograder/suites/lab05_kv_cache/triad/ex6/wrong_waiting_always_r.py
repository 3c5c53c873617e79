"""R values wait, even if fewer have come."""

FAILS = ["test_bits_and_waiting"]


def waiting(tokens, residual):
    return tokens % residual, residual
