"""One zero point for all rows, the first."""

import torch

FAILS = ["test_rows_views_and_bfloat16", "test_zero_is_exact"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = (torch.round(x.float() / scale) + zero.flatten()[0]).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
