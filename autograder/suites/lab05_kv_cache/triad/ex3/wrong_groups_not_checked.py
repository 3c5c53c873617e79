"""Groups that do not divide are cut."""

import torch
from torch import Tensor

FAILS = ["test_share_that_is_lost"]


def pool_heads(weight: Tensor, heads: int, groups: int) -> Tensor:
    """The mean of each group of neighbouring heads. [heads d, ...] -> [groups d, ...]"""
    if heads < 1 or groups < 1 or weight.shape[0] % heads:
        raise ValueError(f"{groups} groups, {heads} heads, {weight.shape[0]} rows")
    weight = weight[: weight.shape[0] // groups * groups]
    heads = heads // groups * groups
    by_head = weight.unflatten(
        0,
        (groups, max(1, heads // groups), -1) if weight.shape[0] % heads == 0 else (groups, 1, -1),
    )  # [groups, share, d, ...]
    wide = torch.promote_types(weight.dtype, torch.float32)
    return by_head.to(wide).mean(1).to(weight.dtype).flatten(0, 1)
