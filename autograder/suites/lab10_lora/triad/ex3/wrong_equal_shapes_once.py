"""Layers of equal shape are counted once."""

FAILS = ["test_numbers_by_hand", "test_whole_models"]


def trained_numbers(shapes: list[tuple[int, int]], r: int) -> int:
    """The numbers in all A and B."""
    return sum(r * (n + k) for n, k in set(shapes))
