"""torch.set_grad_enabled(False) in place of torch.no_grad(): nobody takes it back."""

import copy

import torch

FAILS = ["test_parameters_against_float64", "test_parameters_stay_parameters"]


def smooth(model, groups, maxima, alpha):
    torch.set_grad_enabled(False)
    smoothed = copy.deepcopy(model)
    for norm_name, names in groups.items():
        norm = smoothed.get_submodule(norm_name)
        linears = [smoothed.get_submodule(name) for name in names]
        weights = [linear.weight for linear in linears]
        s = smoothing_scales(maxima[names[0]], weights, alpha)  # noqa: F821 -- exercise 4
        norm.weight.div_(s)
        if getattr(norm, "bias", None) is not None:
            norm.bias.div_(s)
        for weight in weights:
            weight.mul_(s)
    return smoothed
