"""Clamped before the zero point is added: the lower part of an asymmetric range is cut off."""

import torch

FAILS = ["test_error_is_half_a_step", "test_clipping"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = torch.round(x.float() / scale).clamp(qmin, qmax) + zero
    return codes.to(torch.int16).to(torch.int8 if symmetric else torch.uint8)
