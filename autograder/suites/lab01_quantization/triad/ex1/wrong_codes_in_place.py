"""Divides x itself."""

import torch

FAILS = ["test_clipping", "test_zero_is_exact"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    if x.dtype == torch.float32:
        x, scale = x.div_(scale), 1
    codes = (torch.round(x.float() / scale) + zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
