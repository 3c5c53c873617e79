"""No repetitions give an empty weight."""

from torch import Tensor

FAILS = ["test_share_that_is_lost"]


def repeat_heads(weight: Tensor, heads: int, times: int) -> Tensor:
    """Each head `times` times, side by side. [heads d, ...] -> [heads times d, ...]"""
    if heads < 1 or weight.shape[0] % heads:
        raise ValueError(f"{heads} heads, {times} times, {weight.shape[0]} rows")
    return weight.unflatten(0, (heads, -1)).repeat_interleave(max(0, times), dim=0).flatten(0, 1)
