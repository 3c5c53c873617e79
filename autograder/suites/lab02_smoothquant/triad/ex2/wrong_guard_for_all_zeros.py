"""The scale of 0 is avoided only where all of x_max is 0."""

import torch

FAILS = ["test_zeros"]


def int8_codes(x, x_max):
    scale = x_max.float() / 127
    scale = scale if scale.any() else torch.ones_like(scale)
    return torch.round(x.float() / scale).clamp(-127, 127).to(torch.int8), scale
