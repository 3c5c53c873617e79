"""What help and hints say, word for word."""

import torch


def pool_heads(weight, heads, groups):
    if heads < 1 or groups < 1 or heads % groups or len(weight) % heads:
        raise ValueError("heads and groups")
    d, rest = len(weight) // heads, weight.shape[1:]
    wide = weight if weight.dtype == torch.float64 else weight.float()
    mean = wide.reshape(groups, heads // groups, d, *rest).mean(1)
    return mean.reshape(groups * d, *rest).to(weight.dtype)


def repeat_heads(weight, heads, times):
    if heads < 1 or times < 1 or len(weight) % heads:
        raise ValueError("heads and times")
    by_head = weight.reshape(heads, -1, *weight.shape[1:])
    return by_head.repeat_interleave(times, dim=0).reshape(-1, *weight.shape[1:])


def pooled_error(weight, heads, groups):
    back = repeat_heads(pool_heads(weight, heads, groups), groups, heads // groups)
    return float((weight - back).float().square().sum() / weight.float().square().sum())
