"""Weights are replaced by new parameters, which train whatever was frozen."""

import copy

import torch

FAILS = ["test_nothing_else_changes", "test_parameters_stay_parameters"]


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
            for linear in linears:
                linear.weight = torch.nn.Parameter((linear.weight * s).to(linear.weight.dtype))
    return smoothed
