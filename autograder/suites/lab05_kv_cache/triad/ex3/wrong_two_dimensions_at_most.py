"""The weight is taken for a matrix or a vector."""

import torch
from torch import Tensor

FAILS = ["test_pooling_against_a_loop"]


def pool_heads(weight: Tensor, heads: int, groups: int) -> Tensor:
    """The mean of each group of neighbouring heads. [heads d, ...] -> [groups d, ...]"""
    if heads < 1 or groups < 1 or heads % groups or weight.shape[0] % heads:
        raise ValueError(f"{groups} groups, {heads} heads, {weight.shape[0]} rows")
    shape = weight.shape if weight.ndim < 3 else (weight.shape[0], weight.shape[1])
    by_head = weight.reshape(shape).unflatten(0, (groups, heads // groups, -1))
    wide = torch.promote_types(weight.dtype, torch.float32)
    return by_head.to(wide).mean(1).to(weight.dtype).flatten(0, 1)
