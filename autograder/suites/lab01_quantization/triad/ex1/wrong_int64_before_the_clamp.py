"""A cast to int64 before the clamp: 1e30 does not fit."""

import torch

FAILS = ["test_clipping", "test_change_of_sign"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = (torch.round(x.float() / scale).long() + zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
