"""One s for the whole model, that of the last group."""

import copy

import torch

FAILS = ["test_parameters_against_float64"]


def smooth(model, groups, maxima, alpha):
    smoothed = copy.deepcopy(model)
    last = list(groups.values())[-1]
    weights = [smoothed.get_submodule(name).weight.detach() for name in last]
    shared = smoothing_scales(maxima[last[0]], weights, alpha)  # noqa: F821
    for norm_name, names in groups.items():
        norm = smoothed.get_submodule(norm_name)
        linears = [smoothed.get_submodule(name) for name in names]
        s = shared
        with torch.no_grad():
            norm.weight.div_(s)
            if getattr(norm, "bias", None) is not None:
                norm.bias.div_(s)
            for linear in linears:
                linear.weight.mul_(s)
    return smoothed
