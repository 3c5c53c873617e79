"""No heads are refused, negative numbers of them not."""

import torch
from torch import Tensor

FAILS = ["test_shares_against_float64"]


def pool_heads(weight: Tensor, heads: int, groups: int) -> Tensor:
    """The mean of each group of neighbouring heads. [heads d, ...] -> [groups d, ...]"""
    if heads == 0 or groups < 1 or heads % groups or weight.shape[0] % heads:
        raise ValueError(f"{groups} groups, {heads} heads, {weight.shape[0]} rows")
    by_head = weight.unflatten(0, (groups, heads // groups, -1))  # [groups, share, d, ...]
    wide = torch.promote_types(weight.dtype, torch.float32)
    return by_head.to(wide).mean(1).to(weight.dtype).flatten(0, 1)
