"""The largest of equal ones."""

FAILS = ["test_no_better_distance", "test_the_best_distance"]


def best_every(layers: int, boundary: float, block: float) -> int:
    """The `every` with the fewest bytes, the smallest of equal ones."""
    return min(range(layers, 0, -1), key=lambda n: checkpointed(layers, boundary, block, n))
