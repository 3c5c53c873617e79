"""float16 heads are added in float16, bfloat16 ones in float32."""

import torch
from torch import Tensor

FAILS = ["test_pooling_by_hand", "test_dtypes"]


def pool_heads(weight: Tensor, heads: int, groups: int) -> Tensor:
    """The mean of each group of neighbouring heads. [heads d, ...] -> [groups d, ...]"""
    if heads < 1 or groups < 1 or heads % groups or weight.shape[0] % heads:
        raise ValueError(f"{groups} groups, {heads} heads, {weight.shape[0]} rows")
    by_head = weight.unflatten(0, (groups, heads // groups, -1))  # [groups, share, d, ...]
    wide = torch.promote_types(weight.dtype, torch.float32)
    if weight.dtype == torch.float16:
        total = by_head[:, 0]
        for i in range(1, by_head.shape[1]):
            total = total + by_head[:, i]
        return (total / by_head.shape[1]).flatten(0, 1)
    return by_head.to(wide).mean(1).to(weight.dtype).flatten(0, 1)
