"""The hints, step by step, with the range of alpha as two comparisons."""

import torch


def smoothing_scales(x_max, weights, alpha):
    if alpha < 0 or alpha > 1:
        raise ValueError("alpha")
    w_max = torch.cat(weights).float().abs().amax(dim=0).clamp(min=FLOOR)  # noqa: F821
    x_max = x_max.float().clamp(min=FLOOR)  # noqa: F821
    return x_max**alpha / w_max ** (1 - alpha)
