"""Takes the first scale and zero point for every row."""

import torch

FAILS = ["test_codes_of_every_width"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    scale, zero = scale.flatten()[0], zero.flatten()[0]
    codes = (torch.round(x.float() / scale) + zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
