"""Values and keys are exchanged."""

FAILS = ["test_bits_and_waiting"]


def waiting(tokens, residual):
    return min(tokens, residual), tokens % residual
