"""A float is returned."""

FAILS = ["test_bytes"]


def attention_bytes(T: int, S: int, d: int, block_m: int, itemsize: int) -> int:
    """Bytes that tiled attention moves."""
    blocks = float(-(-T // block_m))
    return itemsize * (2 * T * d + 2 * blocks * S * d) + 4 * T
