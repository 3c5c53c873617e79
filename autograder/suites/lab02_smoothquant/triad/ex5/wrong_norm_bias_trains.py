"""The bias of a norm becomes a new parameter, which trains also if it was frozen."""

import copy

import torch

FAILS = ["test_parameters_stay_parameters"]


def smooth(model, groups, maxima, alpha):
    new = copy.deepcopy(model)
    with torch.no_grad():
        for norm_name, names in groups.items():
            norm = new.get_submodule(norm_name)
            linears = [new.get_submodule(name) for name in names]
            s = smoothing_scales(maxima[names[0]], [m.weight for m in linears], alpha)  # noqa: F821
            norm.weight.div_(s)
            if getattr(norm, "bias", None) is not None:
                norm.bias = torch.nn.Parameter((norm.bias / s).to(norm.bias.dtype))
            for linear in linears:
                linear.weight.mul_(s)
    return new
