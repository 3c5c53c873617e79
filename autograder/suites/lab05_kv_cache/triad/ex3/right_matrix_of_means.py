"""Pooling as a matrix of means, repeating as an index, the share by Pythagoras."""

import torch


def pool_heads(weight, heads, groups):
    if min(heads, groups) < 1 or heads % groups or weight.size(0) % heads:
        raise ValueError("sizes")
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    share = heads // groups
    mean = torch.eye(groups, dtype=dtype).repeat_interleave(share, dim=1) / share
    flat = weight.to(dtype).reshape(heads, -1)
    rows = (weight.size(0) // heads * groups, *weight.shape[1:])
    return (mean @ flat).reshape(rows).to(weight.dtype)


def repeat_heads(weight, heads, times):
    if min(heads, times) < 1 or weight.size(0) % heads:
        raise ValueError("sizes")
    d = weight.size(0) // heads
    row = torch.arange(heads * times * d)
    return weight[row // (times * d) * d + row % d]


def pooled_error(weight, heads, groups):
    # what is left of each group is orthogonal to its mean: |w|^2 = |mean|^2 share + |w - mean|^2
    pooled = pool_heads(weight.double(), heads, groups)
    kept = pooled.square().sum() * (heads // groups)
    return 1.0 - (kept / weight.double().square().sum()).item()
