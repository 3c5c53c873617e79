"""The whole weight is repeated: 0 1 0 1."""

from torch import Tensor

FAILS = ["test_repeating_by_hand"]


def repeat_heads(weight: Tensor, heads: int, times: int) -> Tensor:
    """Each head `times` times, side by side. [heads d, ...] -> [heads times d, ...]"""
    if heads < 1 or times < 1 or weight.shape[0] % heads:
        raise ValueError(f"{heads} heads, {times} times, {weight.shape[0]} rows")
    return weight.unflatten(0, (heads, -1)).repeat(times, *[1] * weight.dim()).flatten(0, 1)
