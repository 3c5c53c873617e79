"""Divides by scale + 1e-8, so that small scales are no longer those of the grid."""

import torch

FAILS = ["test_codes_of_every_width"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the lab
    codes = (torch.round(x.float() / (scale + 1e-8)) + zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
