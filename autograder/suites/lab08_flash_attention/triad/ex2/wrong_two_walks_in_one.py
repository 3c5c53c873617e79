"""The second walk of two is said to read no key."""

FAILS = ["test_bytes", "test_random_bytes"]


def two_walks_bytes(T: int, S: int, d: int, block_m: int, itemsize: int) -> int:
    """Bytes of two walks along the keys: for m and total, then for o."""
    blocks = -(-T // block_m)
    return itemsize * (2 * T * d + 2 * blocks * S * d) + 4 * T
