"""The bytes of the best in place of its distance."""

FAILS = ["test_no_better_distance", "test_the_best_distance"]


def best_every(layers: int, boundary: float, block: float) -> int:
    """The `every` with the fewest bytes, the smallest of equal ones."""
    return min(checkpointed(layers, boundary, block, n) for n in range(1, layers + 1))
