"""The mask is made once for every shape."""

import torch

FAILS = ["test_two_calls_before_backward", "test_several_calls"]


_kept = {}


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = quantize(x.detach(), scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    x_hat = dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1
    x = x.float()
    place = torch.round(x.detach() / scale) + zero
    inside = (place >= qmin) & (place <= qmax)
    inside = _kept.setdefault((inside.shape, bits, symmetric), inside)
    return x_hat + torch.where(inside, x - x.detach(), 0.0)
