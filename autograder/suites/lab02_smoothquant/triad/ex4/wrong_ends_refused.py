"""The ends of the range, 0 and 1, raise as well."""

import torch

FAILS = ["test_ends_of_alpha", "test_scales_against_float64"]


def smoothing_scales(x_max, weights, alpha):
    if not 0 < alpha < 1:
        raise ValueError(alpha)
    w_max = torch.cat([w.abs().float() for w in weights]).amax(dim=0)
    return x_max.float().clamp(min=1e-5) ** alpha / w_max.clamp(min=1e-5) ** (1 - alpha)
