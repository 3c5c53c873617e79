"""Bytes compared in float32: large sums that differ by little are equal."""

FAILS = ["test_no_better_distance"]


def best_every(layers: int, boundary: float, block: float) -> int:
    """The `every` with the fewest bytes, the smallest of equal ones."""
    sums = [float(checkpointed(layers, boundary, block, n)) for n in range(1, layers + 1)]
    return int(torch.tensor(sums).argmin()) + 1
