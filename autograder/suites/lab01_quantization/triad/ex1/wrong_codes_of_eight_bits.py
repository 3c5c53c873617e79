"""The clamp is to the range of 8 bits, whatever the width."""

import torch

FAILS = ["test_clipping", "test_change_of_sign"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(8, symmetric)  # noqa: F821 -- given in the notebook
    codes = (torch.round(x.float() / scale) + zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
