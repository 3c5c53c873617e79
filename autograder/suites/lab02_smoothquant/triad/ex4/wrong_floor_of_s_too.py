"""s is clamped at FLOOR as well, as in the code of the authors."""

import torch

FAILS = ["test_dead_channels"]


def smoothing_scales(x_max, weights, alpha):
    if not 0 <= alpha <= 1:
        raise ValueError(alpha)
    w_max = torch.cat([w.abs().float() for w in weights]).amax(dim=0)
    s = x_max.float().clamp(min=1e-5) ** alpha / w_max.clamp(min=1e-5) ** (1 - alpha)
    return s.clamp(min=1e-5)
