"""A scale for each linear: but q and k read the same X."""

import copy

import torch

FAILS = ["test_same_function", "test_parameters_against_float64"]


def smooth(model, groups, maxima, alpha):
    smoothed = copy.deepcopy(model)
    for norm_name, names in groups.items():
        norm = smoothed.get_submodule(norm_name)
        linears = [smoothed.get_submodule(name) for name in names]
        s = smoothing_scales(maxima[names[0]], [m.weight.detach() for m in linears], alpha)  # noqa: F821
        with torch.no_grad():
            norm.weight.div_(s)
            if getattr(norm, "bias", None) is not None:
                norm.bias.div_(s)
            for name, linear in zip(names, linears, strict=True):
                own = smoothing_scales(maxima[name], [linear.weight], alpha)  # noqa: F821
                linear.weight.mul_(own)
    return smoothed
