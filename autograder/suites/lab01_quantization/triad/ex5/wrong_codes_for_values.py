"""The estimator around the codes, with the scale left in the gradient."""

import torch

FAILS = ["test_gradient_inside", "test_gradient_by_rows"]


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    x = x.float()
    q = torch.round(x.detach() / scale) + zero
    inside = (q >= qmin) & (q <= qmax)
    value = (q.clamp(qmin, qmax) - zero) * scale
    return value + torch.where(inside, (x - x.detach()) / scale, 0.0)
