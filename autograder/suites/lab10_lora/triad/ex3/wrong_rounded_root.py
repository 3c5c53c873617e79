"""A rounded root in place of the search."""

FAILS = ["test_no_better_distance", "test_the_best_distance"]


def best_every(layers: int, boundary: float, block: float) -> int:
    """The `every` with the fewest bytes, the smallest of equal ones."""
    return max(1, min(layers, round(math.sqrt(layers * boundary / block))))
