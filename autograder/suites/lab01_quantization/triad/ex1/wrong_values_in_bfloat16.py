"""The values are rounded to bfloat16."""

import torch

FAILS = ["test_error_is_half_a_step", "test_all_codes_survive"]


def dequantize(codes, scale, zero):
    return ((codes.to(torch.int32) - zero) * scale).bfloat16().float()
