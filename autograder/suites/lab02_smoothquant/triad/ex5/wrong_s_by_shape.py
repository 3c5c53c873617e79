"""Keeps s for each number of channels: the second group gets that of the first."""

import copy

import torch

FAILS = ["test_parameters_against_float64"]


def smooth(model, groups, maxima, alpha):
    known = {}
    smoothed = copy.deepcopy(model)
    for norm_name, names in groups.items():
        norm = smoothed.get_submodule(norm_name)
        linears = [smoothed.get_submodule(name) for name in names]
        if len(maxima[names[0]]) not in known:
            weights = [m.weight.detach() for m in linears]
            known[len(maxima[names[0]])] = smoothing_scales(maxima[names[0]], weights, alpha)  # noqa: F821
        s = known[len(maxima[names[0]])]
        with torch.no_grad():
            norm.weight.div_(s)
            if getattr(norm, "bias", None) is not None:
                norm.bias.div_(s)
            for linear in linears:
                linear.weight.mul_(s)
    return smoothed
