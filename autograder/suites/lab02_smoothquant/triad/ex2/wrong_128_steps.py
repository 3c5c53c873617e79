"""Divides by 128: the largest value is clipped."""

import torch

FAILS = ["test_codes_by_hand", "test_outputs_are_integer_sums"]


def int8_codes(x, x_max):
    scale = x_max.float() / 128
    scale = torch.where(scale > 0, scale, 1.0)
    return torch.round(x.float() / scale).clamp(-127, 127).to(torch.int8), scale
