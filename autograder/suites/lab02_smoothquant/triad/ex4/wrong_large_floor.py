"""A floor of 1e-2 changes the scales of small weights."""

import torch

FAILS = ["test_dead_channels"]


def smoothing_scales(x_max, weights, alpha):
    if not 0 <= alpha <= 1:
        raise ValueError(alpha)
    w_max = torch.cat([w.abs().float() for w in weights]).amax(dim=0)
    return x_max.float().clamp(min=1e-2) ** alpha / w_max.clamp(min=1e-2) ** (1 - alpha)
