"""The mask reaches a whole step past the ends."""

import torch

FAILS = ["test_gradient_outside", "test_two_calls_before_backward", "test_every_width"]


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = quantize(x.detach(), scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    x_hat = dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1
    x = x.float()
    place = torch.round(x.detach() / scale) + zero
    inside = (place >= qmin - 1) & (place <= qmax + 1)
    return x_hat + torch.where(inside, x - x.detach(), 0.0)
