"""One checkpoint for all blocks is not tried."""

FAILS = ["test_no_better_distance", "test_the_best_distance"]


def best_every(layers: int, boundary: float, block: float) -> int:
    """The `every` with the fewest bytes, the smallest of equal ones."""
    return min(range(1, max(2, layers)), key=lambda n: checkpointed(layers, boundary, block, n))
