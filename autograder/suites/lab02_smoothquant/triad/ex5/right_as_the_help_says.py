"""The help of the card, word for word."""

import copy

import torch


@torch.no_grad()
def smooth(model, groups, maxima, alpha):
    smoothed = copy.deepcopy(model)
    for norm_name, linears in groups.items():
        norm = smoothed.get_submodule(norm_name)
        linears = {name: smoothed.get_submodule(name) for name in linears}
        weights = [linear.weight for linear in linears.values()]
        s = smoothing_scales(maxima[next(iter(linears))], weights, alpha)  # noqa: F821
        norm.weight /= s
        if getattr(norm, "bias", None) is not None:
            norm.bias /= s
        for linear in linears.values():
            linear.weight *= s
    return smoothed
