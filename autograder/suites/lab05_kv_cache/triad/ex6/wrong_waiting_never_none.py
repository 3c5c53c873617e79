"""R keys wait when a block is complete."""

FAILS = ["test_bits_and_waiting"]


def waiting(tokens, residual):
    return (tokens - 1) % residual + 1 if tokens else 0, min(tokens, residual)
