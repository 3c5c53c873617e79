"""The usual form of quantization-aware training: straight through the rounding of x / s, then +
z, clamp, - z, * s; the gradient is (g s) / s."""

import torch


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    v = x.float() / scale
    v = v + (torch.round(v) - v).detach()
    return (torch.clamp(v + zero, qmin, qmax) - zero) * scale
