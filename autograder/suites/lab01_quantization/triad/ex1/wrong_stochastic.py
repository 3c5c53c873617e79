"""Rounds up or down by chance."""

import torch

FAILS = ["test_error_is_half_a_step", "test_change_of_sign"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = (torch.floor(x.float() / scale + torch.rand(x.shape)) + zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
