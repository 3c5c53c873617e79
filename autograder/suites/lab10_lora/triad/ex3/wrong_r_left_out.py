"""The rank is left out."""

FAILS = ["test_numbers_by_hand", "test_whole_models"]


def trained_numbers(shapes: list[tuple[int, int]], r: int) -> int:
    """The numbers in all A and B."""
    return sum(n + k for n, k in shapes)
