"""The maxima that came in are clamped in place."""

import copy

import torch

FAILS = ["test_parameters_against_float64"]


def smooth(model, groups, maxima, alpha):
    new = copy.deepcopy(model)
    with torch.no_grad():
        for norm_name, names in groups.items():
            norm = new.get_submodule(norm_name)
            linears = [new.get_submodule(name) for name in names]
            maxima[names[0]].clamp_(min=1e-5)
            s = smoothing_scales(maxima[names[0]], [m.weight for m in linears], alpha)  # noqa: F821
            norm.weight.div_(s)
            if getattr(norm, "bias", None) is not None:
                norm.bias.div_(s)
            for linear in linears:
                linear.weight.mul_(s)
    return new
