"""The sum of a group is rounded to bfloat16, then divided."""

from torch import Tensor

FAILS = ["test_pooling_by_hand"]


def pool_heads(weight: Tensor, heads: int, groups: int) -> Tensor:
    """The mean of each group of neighbouring heads. [heads d, ...] -> [groups d, ...]"""
    if heads < 1 or groups < 1 or heads % groups or weight.shape[0] % heads:
        raise ValueError(f"{groups} groups, {heads} heads, {weight.shape[0]} rows")
    by_head = weight.unflatten(0, (groups, heads // groups, -1))  # [groups, share, d, ...]
    return (by_head.sum(1) / (heads // groups)).flatten(0, 1)
