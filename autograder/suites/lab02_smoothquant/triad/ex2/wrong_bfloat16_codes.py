"""Divides in the dtype of x: bfloat16 cannot hold the codes."""

import torch

FAILS = ["test_bfloat16_and_arguments"]


def int8_codes(x, x_max):
    scale = x_max / 127
    scale = torch.where(scale > 0, scale, 1.0)
    return torch.round(x / scale).clamp(-127, 127).to(torch.int8), scale.float()
