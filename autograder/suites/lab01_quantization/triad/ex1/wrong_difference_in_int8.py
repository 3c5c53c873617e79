"""q - z in int8: 200 - 100 is not 100 there."""

import torch

FAILS = ["test_error_is_half_a_step", "test_all_codes_survive"]


def dequantize(codes, scale, zero):
    return (codes.to(torch.int8) - zero.to(torch.int8)) * scale
