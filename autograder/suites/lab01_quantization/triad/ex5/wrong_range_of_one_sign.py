"""The mask is |x| <= s qmax: right for symmetric grids only."""

import torch

FAILS = ["test_gradient_by_rows"]


def fake_quantize(x, scale, zero, bits, symmetric):
    _, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = quantize(x.detach(), scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    x = x.float()
    value = dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1
    return value + torch.where(x.detach().abs() <= scale * (qmax + 0.5), x - x.detach(), 0.0)
