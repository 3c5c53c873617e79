"""Values and keys are exchanged."""

FAILS = ["test_bits_and_waiting", "test_bits_held_by_counting"]


def waiting(tokens, residual):
    return min(tokens, residual), tokens % residual
