"""Half of the gradient within half a step of the ends."""

import torch

FAILS = ["test_rows_and_bfloat16", "test_every_width"]


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = quantize(x.detach(), scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    x_hat = dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1
    x = x.float()
    place = torch.round(x.detach() / scale) + zero
    inside = (place >= qmin) & (place <= qmax)
    near = (x.detach() / scale + zero).clamp(qmin, qmax) != x.detach() / scale + zero
    part = torch.where(near, 0.5, 1.0)
    return x_hat + part * torch.where(inside, x - x.detach(), 0.0)
