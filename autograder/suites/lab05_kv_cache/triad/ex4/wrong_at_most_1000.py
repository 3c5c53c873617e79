"""A search for the number of sequences that ends at 1000."""

FAILS = ["test_one_more_does_not_fit"]


def max_batch(
    config: dict,
    parameters: int,
    memory: int,
    context: int,
    weight_bits: float = 16,
    bits: int = 16,
    group_size: int | None = None,
) -> int:
    """How many sequences of `context` tokens fit into `memory` bytes beside the weights."""
    left = memory - parameters * weight_bits / 8
    return max(0, min(1000, int(left // cache_bytes(config, [context], bits, group_size))))  # noqa: F821
