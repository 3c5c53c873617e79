"""Each row is repeated."""

from torch import Tensor

FAILS = ["test_repeating_by_hand"]


def repeat_heads(weight: Tensor, heads: int, times: int) -> Tensor:
    """Each head `times` times, side by side. [heads d, ...] -> [heads times d, ...]"""
    if heads < 1 or times < 1 or weight.shape[0] % heads:
        raise ValueError(f"{heads} heads, {times} times, {weight.shape[0]} rows")
    return weight.repeat_interleave(times, dim=0)
