"""Turns gradients on in x, so that the result always requires one."""

import torch

FAILS = ["test_values_on_the_grid"]


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    with torch.no_grad():
        codes = quantize(x, scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
        x_hat = dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1
        place = torch.round(x.float() / scale) + zero
        inside = (place >= qmin) & (place <= qmax)
    x = x.requires_grad_(True).float()
    return x_hat + (x - x.detach()) * inside
