"""The weights are rounded up to whole bytes."""

FAILS = ["test_crossover_from_both_sides"]


def crossover(
    config: dict,
    parameters: int,
    weight_bits: float = 16,
    bits: int = 16,
    group_size: int | None = None,
) -> int:
    """The fewest cached tokens that take more bytes than the weights."""
    weights = -(-parameters * weight_bits // 8)
    return int(weights // bytes_per_token(config, bits, group_size)) + 1  # noqa: F821
