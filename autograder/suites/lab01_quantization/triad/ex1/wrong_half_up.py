"""floor(x / s + 1/2): all ties go up."""

import torch

FAILS = ["test_ties_go_to_even", "test_change_of_sign"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = (torch.floor(x.float() / scale + 0.5) + zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
