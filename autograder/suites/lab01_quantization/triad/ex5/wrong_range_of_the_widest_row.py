"""The mask uses the largest scale for all rows."""

import torch

FAILS = ["test_rows_and_bfloat16", "test_gradient_by_rows"]


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = quantize(x.detach(), scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    x_hat = dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1
    x = x.float()
    place = torch.round(x.detach() / scale.max()) + zero
    inside = (place >= qmin) & (place <= qmax)
    return x_hat + torch.where(inside, x - x.detach(), 0.0)
