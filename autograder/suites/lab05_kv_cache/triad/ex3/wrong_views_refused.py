"""view() in place of reshape or unflatten."""

import torch
from torch import Tensor

FAILS = ["test_pooling_against_a_loop"]


def pool_heads(weight: Tensor, heads: int, groups: int) -> Tensor:
    """The mean of each group of neighbouring heads. [heads d, ...] -> [groups d, ...]"""
    if heads < 1 or groups < 1 or heads % groups or weight.shape[0] % heads:
        raise ValueError(f"{groups} groups, {heads} heads, {weight.shape[0]} rows")
    by_head = weight.view(-1).view(
        groups, heads // groups, -1, *weight.shape[1:]
    )  # [groups, share, d, ...]  # noqa: E501
    wide = torch.promote_types(weight.dtype, torch.float32)
    return by_head.to(wide).mean(1).to(weight.dtype).flatten(0, 1)
