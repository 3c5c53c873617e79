"""A maximum of 0 gives a scale of 0, and 0 / 0."""

import torch

FAILS = ["test_zeros"]


def int8_codes(x, x_max):
    scale = x_max.float() / 127
    return torch.round(x.float() / scale).clamp(-127, 127).nan_to_num(-127).to(torch.int8), scale
