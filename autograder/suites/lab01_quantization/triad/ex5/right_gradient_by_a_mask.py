"""Codes of the detached x; what the gradient gets is a mask of the codes before clipping."""

import torch


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = quantize(x.detach(), scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    x_hat = dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1
    x = x.float()
    place = torch.round(x.detach() / scale) + zero
    inside = (place >= qmin) & (place <= qmax)
    return x_hat + torch.where(inside, x - x.detach(), 0.0)
