"""Takes the groups out of the caller's dictionary one by one."""

import copy

import torch

FAILS = ["test_parameters_against_float64"]


def smooth(model, groups, maxima, alpha):
    smoothed = copy.deepcopy(model)
    while groups:
        norm_name, names = groups.popitem()
        norm = smoothed.get_submodule(norm_name)
        linears = [smoothed.get_submodule(name) for name in names]
        s = smoothing_scales(maxima[names[0]], [m.weight.detach() for m in linears], alpha)  # noqa: F821
        with torch.no_grad():
            norm.weight.div_(s)
            if getattr(norm, "bias", None) is not None:
                norm.bias.div_(s)
            for linear in linears:
                linear.weight.mul_(s)
    return smoothed
