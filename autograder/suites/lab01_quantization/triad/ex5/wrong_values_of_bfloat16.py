"""The values come back in the dtype of x."""

import torch

FAILS = ["test_rows_and_bfloat16", "test_bfloat16"]


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = quantize(x.detach(), scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    x_hat = dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1
    kind, x = x.dtype, x.float()
    place = torch.round(x.detach() / scale) + zero
    inside = (place >= qmin) & (place <= qmax)
    return (x_hat + torch.where(inside, x - x.detach(), 0.0)).to(kind)
