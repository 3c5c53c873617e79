"""torch.minimum and torch.maximum halve the gradient where both sides are equal."""

import torch

FAILS = ["test_gradient_inside", "test_every_width"]


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    steps = x.to(torch.float32) * (1 / scale)
    steps = torch.minimum(torch.maximum(steps, (qmin - zero).float()), (qmax - zero).float())
    return scale * (steps + (steps.round() - steps).detach())
