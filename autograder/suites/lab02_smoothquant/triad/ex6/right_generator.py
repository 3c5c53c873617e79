"""A helper for one alpha, and a list of its results."""

import torch


def _error(x, weights, alpha, activations):
    s = smoothing_scales(x.abs().amax(dim=tuple(range(x.ndim - 1))), weights, alpha)  # noqa: F821
    top = bottom = 0.0
    for w in weights:
        y = torch.nn.functional.linear(x, w)
        y_hat = w8a8_linear(x.div(s), w.mul(s), None, activations)  # noqa: F821
        top += torch.sum((y - y_hat) ** 2).item()
        bottom += torch.sum(y**2).item()
    return top / bottom


def sweep(x, weights, alphas, activations):
    weights = [w.to(torch.float32) for w in weights]
    return [_error(x.to(torch.float32), weights, alpha, activations) for alpha in alphas]
