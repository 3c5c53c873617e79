"""The hints, step by step."""

import torch


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    with torch.no_grad():
        codes = quantize(x, scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
        x_hat = dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1
        place = torch.round(x.float() / scale) + zero
        inside = (place >= qmin) & (place <= qmax)
    x = x.float()
    return x_hat + torch.where(inside, x - x.detach(), 0.0)
