"""Errors weight by weight as norms, rounding written out."""

import torch


def _grid(v, per_token):
    top = v.abs().amax(-1, keepdim=True) if per_token else v.abs().amax()
    step = torch.where(top > 0, top, 127.0) / 127
    return torch.round(v / step) * step


def sweep(x, weights, alphas, activations):
    rows = x.reshape(-1, x.shape[-1]).float()
    weights = [w.float() for w in weights]
    exact = torch.cat([rows @ w.T for w in weights], dim=1)
    result = []
    for alpha in alphas:
        s = smoothing_scales(rows.abs().max(dim=0).values, weights, alpha)  # noqa: F821
        rounded = _grid(rows / s, activations == "token")
        y = torch.cat([rounded @ _grid(w * s, False).T for w in weights], dim=1)
        result.append(float((y - exact).norm().double() ** 2 / exact.norm().double() ** 2))
    return result
