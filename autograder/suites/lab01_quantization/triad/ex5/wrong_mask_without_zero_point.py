"""The mask compares round(x / s) with the codes and forgets z."""

import torch

FAILS = ["test_gradient_inside", "test_gradient_by_rows"]


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = quantize(x.detach(), scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    x = x.float()
    position = torch.round(x.detach() / scale)
    inside = (position >= qmin) & (position <= qmax)
    value = dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1
    return value + torch.where(inside, x - x.detach(), 0.0)
