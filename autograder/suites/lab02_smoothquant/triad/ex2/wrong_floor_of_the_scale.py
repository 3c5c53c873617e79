"""A floor of 1e-5 for the scale: small activations vanish."""

import torch

FAILS = ["test_scale_and_sign"]


def int8_codes(x, x_max):
    scale = (x_max.float() / 127).clamp(min=1e-5)
    return torch.round(x.float() / scale).clamp(-127, 127).to(torch.int8), scale
