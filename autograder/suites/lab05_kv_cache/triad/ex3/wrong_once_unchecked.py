"""Heads that are repeated once are not checked."""

from torch import Tensor

FAILS = ["test_shares_against_float64"]


def repeat_heads(weight: Tensor, heads: int, times: int) -> Tensor:
    """Each head `times` times, side by side. [heads d, ...] -> [heads times d, ...]"""
    if times == 1:
        return weight.clone()
    if heads < 1 or times < 1 or weight.shape[0] % heads:
        raise ValueError(f"{heads} heads, {times} times, {weight.shape[0]} rows")
    return weight.unflatten(0, (heads, -1)).repeat_interleave(times, dim=0).flatten(0, 1)
