"""view(-1) on an x that may not be contiguous."""

import torch

FAILS = ["test_rows_views_and_bfloat16", "test_codes_of_every_width"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = (torch.round(x.view(-1).view(x.shape).float() / scale) + zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
