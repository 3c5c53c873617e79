"""As before with the reciprocal of s, and the clamp before the rounding: then the mask ends with
the grid."""

import torch


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    steps = x.to(torch.float32) * (1 / scale)
    steps = steps.clamp(min=qmin - zero, max=qmax - zero)
    return scale * (steps + (steps.round() - steps).detach())
