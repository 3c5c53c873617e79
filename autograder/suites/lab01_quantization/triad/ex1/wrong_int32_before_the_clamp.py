"""A cast to int32 before the clamp: far outside, numbers wrap around."""

import torch

FAILS = ["test_clipping", "test_change_of_sign"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = (torch.round(x.float() / scale).to(torch.int32) + zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
