"""Scores are counted as written and read, probabilities not."""

FAILS = ["test_bytes", "test_random_bytes"]


def stored_bytes(T: int, S: int, d: int, itemsize: int) -> int:
    """Bytes that attention moves if it stores its scores."""
    return itemsize * (2 * T * d + 2 * S * d + 2 * T * S)
