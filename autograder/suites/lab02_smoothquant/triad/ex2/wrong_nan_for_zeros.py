"""Multiplies rounded values, and a token of zeros is rounded to 0 / 0: NaN."""

import torch

FAILS = ["test_zeros"]


def _rounded(v, top):
    step = top.float() / 127
    return torch.round(v.float() / step).clamp(-127, 127) * step


def w8a8_linear(x, w, bias, activations, x_max=None):
    if activations == "token":
        x_max = x.abs().amax(dim=-1, keepdim=True)
    elif activations == "tensor":
        x_max = x.abs().amax()
    elif activations != "static" or x_max is None:
        raise ValueError(activations)
    y = _rounded(x, x_max) @ _rounded(w, w.abs().amax()).T
    return y if bias is None else y + bias.float()
