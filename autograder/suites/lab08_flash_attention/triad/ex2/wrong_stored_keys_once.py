"""Stored attention is counted with a perfect cache: k and v once."""

FAILS = ["test_bytes", "test_random_bytes"]


def stored_bytes(T: int, S: int, d: int, block_m: int, itemsize: int) -> int:
    """Bytes that attention in blocks of queries moves if it stores its scores."""
    blocks = -(-T // block_m)
    return itemsize * (2 * T * d + 2 * S * d + 4 * T * S)
