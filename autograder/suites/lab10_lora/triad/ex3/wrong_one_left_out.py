"""A checkpoint at every block is not tried."""

FAILS = ["test_the_best_distance"]


def best_every(layers: int, boundary: float, block: float) -> int:
    """The `every` with the fewest bytes, the smallest of equal ones."""
    return min(
        range(min(2, layers), layers + 1), key=lambda n: checkpointed(layers, boundary, block, n)
    )
