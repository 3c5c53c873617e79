"""s is rounded to the dtype of the parameters before it divides and multiplies: it cancels."""

import copy

import torch


def smooth(model, groups, maxima, alpha):
    new = copy.deepcopy(model)
    with torch.no_grad():
        for norm_name, readers in groups.items():
            norm = new.get_submodule(norm_name)
            linears = [new.get_submodule(name) for name in readers]
            weights = [linear.weight for linear in linears]
            s = smoothing_scales(maxima[readers[0]], weights, alpha)  # noqa: F821
            norm.weight.copy_(norm.weight / s.to(norm.weight.dtype))
            if getattr(norm, "bias", None) is not None:
                norm.bias.copy_(norm.bias / s.to(norm.bias.dtype))
            for linear in linears:
                linear.weight.copy_(linear.weight * s.to(linear.weight.dtype))
    return new
