"""No estimator: autograd's derivative of round is 0."""

import torch

FAILS = ["test_values_on_the_grid", "test_gradient_inside", "test_training_reaches_the_target"]


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    return ((torch.round(x.float() / scale) + zero).clamp(qmin, qmax) - zero) * scale
