"""The mask divides by scale + 1e-6: where the scale is small, nothing is clipped."""

import torch

FAILS = ["test_gradient_by_rows"]


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the lab
    with torch.no_grad():
        x_hat = dequantize(quantize(x, scale, zero, bits, symmetric), scale, zero)  # noqa: F821
        position = torch.round(x.float() / (scale + 1e-6)) + zero
        inside = (position >= qmin) & (position <= qmax)
    x = x.float()
    return x_hat + torch.where(inside, x - x.detach(), 0.0)
