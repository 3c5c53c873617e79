"""Dimensions split by view, which any strides allow; the share by way of the repeated heads."""

import torch
from torch import Tensor


def refuse(weight: Tensor, heads: int, other: int) -> None:
    if heads < 1 or other < 1 or weight.shape[0] % heads:
        raise ValueError("heads, groups and times are at least 1, heads divides the rows")


def pool_heads(weight: Tensor, heads: int, groups: int) -> Tensor:
    refuse(weight, heads, groups)
    if heads % groups:
        raise ValueError("groups must divide heads")
    d = weight.shape[0] // heads
    wide = torch.promote_types(weight.dtype, torch.float32)
    split = weight.to(wide).view(groups, heads // groups, d, *weight.shape[1:])
    return split.mean(1).reshape(groups * d, *weight.shape[1:]).to(weight.dtype)


def repeat_heads(weight: Tensor, heads: int, times: int) -> Tensor:
    refuse(weight, heads, times)
    d = weight.shape[0] // heads
    split = weight.view(heads, d, *weight.shape[1:])
    return split.repeat_interleave(times, dim=0).reshape(heads * times * d, *weight.shape[1:])


def pooled_error(weight: Tensor, heads: int, groups: int) -> float:
    back = repeat_heads(pool_heads(weight, heads, groups), groups, heads // groups)
    lost = (weight.double() - back.double()).square().sum()
    return (lost / weight.double().square().sum()).item()
