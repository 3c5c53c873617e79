"""float64 values."""

import torch

FAILS = ["test_codes_by_hand", "test_zero_is_exact"]


def dequantize(codes, scale, zero):
    return (codes.to(torch.int32) - zero) * scale.double()
