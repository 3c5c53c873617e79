"""z is added on symmetric grids only, where it is 0."""

import torch

FAILS = ["test_codes_by_hand", "test_zero_is_exact"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = (torch.round(x.float() / scale) + (zero if symmetric else 0)).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
