"""Symmetric codes from -2^(b-1): one level more below 0 than above, -x is not mirrored."""

import torch

FAILS = ["test_clipping", "test_change_of_sign"]


def quantize(x, scale, zero, bits, symmetric):
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if symmetric else (0, 2**bits - 1)
    codes = (torch.round(x.float() / scale) + zero).clamp(low, high)
    return codes.to(torch.int8 if symmetric else torch.uint8)
