"""Stored attention is given an lse."""

FAILS = ["test_bytes", "test_random_bytes"]


def stored_bytes(T: int, S: int, d: int, block_m: int, itemsize: int) -> int:
    """Bytes that attention in blocks of queries moves if it stores its scores."""
    blocks = -(-T // block_m)
    return itemsize * (2 * T * d + 2 * blocks * S * d + 4 * T * S) + 4 * T
