"""No clamp: beyond x_max codes wrap around in int8."""

import torch

FAILS = ["test_codes_by_hand", "test_static_scales"]


def int8_codes(x, x_max):
    scale = x_max.float() / 127
    scale = torch.where(scale > 0, scale, 1.0)
    return torch.round(x.float() / scale).to(torch.int32).to(torch.int8), scale
