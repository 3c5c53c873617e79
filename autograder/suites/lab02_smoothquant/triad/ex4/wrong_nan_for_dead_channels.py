"""The floor after the powers: at alpha = 0.5, 0 / 0 is NaN, and no clamp repairs that."""

import torch

FAILS = ["test_dead_channels"]


def smoothing_scales(x_max, weights, alpha):
    if not 0 <= alpha <= 1:
        raise ValueError("alpha")
    w_max = torch.cat([w.abs().float() for w in weights]).amax(dim=0)
    return (x_max.float() ** alpha / w_max ** (1 - alpha)).clamp(min=FLOOR)  # noqa: F821
