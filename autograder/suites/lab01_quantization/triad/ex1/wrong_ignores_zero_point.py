"""Symmetric arithmetic for both kinds: z is never added, nor taken off."""

import torch

FAILS = ["test_codes_by_hand", "test_error_is_half_a_step", "test_zero_is_exact"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = torch.round(x.float() / scale).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)


def dequantize(codes, scale, zero):
    return codes.float() * scale
