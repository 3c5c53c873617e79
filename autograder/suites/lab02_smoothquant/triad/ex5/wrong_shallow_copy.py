"""copy.copy: the copy shares its parameters with the original."""

import copy

import torch

FAILS = [
    "test_same_function",
    "test_activations_are_divided",
    "test_nothing_else_changes",
    "test_parameters_against_float64",
    "test_norms_without_bias",
    "test_what_must_stay",
    "test_llama",
    "test_parameters_stay_parameters",
]


def smooth(model, groups, maxima, alpha):
    smoothed = copy.copy(model)
    for norm_name, names in groups.items():
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
