"""The last hint, word for word."""

import torch


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = (torch.round(x.float() / scale) + zero).clamp(qmin, qmax)
    return codes.to(torch.int8) if symmetric else codes.to(torch.uint8)


def dequantize(codes, scale, zero):
    return scale * (codes.to(torch.int32) - zero)
