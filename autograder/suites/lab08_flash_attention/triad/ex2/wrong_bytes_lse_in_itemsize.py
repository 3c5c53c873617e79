"""lse counts as an element of the inputs."""

FAILS = ["test_bytes", "test_random_bytes"]


def attention_bytes(T: int, S: int, d: int, block_m: int, itemsize: int) -> int:
    """Bytes that tiled attention moves."""
    blocks = -(-T // block_m)
    return itemsize * (2 * T * d + 2 * blocks * S * d + T)
