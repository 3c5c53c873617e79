"""Loops over heads."""

import torch


def _heads(weight, heads):
    if heads < 1 or weight.shape[0] % heads:
        raise ValueError("heads")
    return list(weight.split(weight.shape[0] // heads))


def pool_heads(weight, heads, groups):
    parts = _heads(weight, heads)
    if groups < 1 or heads % groups:
        raise ValueError("groups")
    share, pooled = heads // groups, []
    for g in range(groups):
        total = sum(part.double() for part in parts[g * share : (g + 1) * share])
        pooled.append((total / share).to(weight.dtype))
    return torch.cat(pooled)


def repeat_heads(weight, heads, times):
    parts = _heads(weight, heads)
    if times < 1:
        raise ValueError("times")
    return torch.cat([part for part in parts for _ in range(times)])


def pooled_error(weight, heads, groups):
    pooled = _heads(pool_heads(weight.double(), heads, groups), groups)
    share, lost = heads // groups, 0.0
    for h, part in enumerate(_heads(weight.double(), heads)):
        lost += float((part - pooled[h // share]).pow(2).sum())
    return lost / float(weight.double().pow(2).sum())
