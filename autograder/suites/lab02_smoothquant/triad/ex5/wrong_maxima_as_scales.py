"""s is the maximum of X: alpha and the weights are ignored."""

import copy

import torch

FAILS = ["test_activations_are_divided", "test_parameters_against_float64"]


def smooth(model, groups, maxima, alpha):
    smoothed = copy.deepcopy(model)
    for norm_name, names in groups.items():
        norm = smoothed.get_submodule(norm_name)
        linears = [smoothed.get_submodule(name) for name in names]
        s = maxima[names[0]]
        with torch.no_grad():
            norm.weight.div_(s)
            if getattr(norm, "bias", None) is not None:
                norm.bias.div_(s)
            for linear in linears:
                linear.weight.mul_(s)
    return smoothed
