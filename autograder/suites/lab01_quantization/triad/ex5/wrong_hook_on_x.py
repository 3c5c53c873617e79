"""A hook on x masks every gradient that x gets, from elsewhere too."""

import torch

FAILS = ["test_two_calls_before_backward"]


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = quantize(x.detach(), scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    x_hat = dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1
    leaf, x = x, x.float()
    place = torch.round(x.detach() / scale) + zero
    inside = (place >= qmin) & (place <= qmax)
    if leaf.requires_grad:
        leaf.register_hook(lambda grad: grad * inside)
    return x_hat + (x - x.detach())
