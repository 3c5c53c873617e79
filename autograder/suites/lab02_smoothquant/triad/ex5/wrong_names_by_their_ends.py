"""Layers of other blocks, in no group, are multiplied if their names end alike."""

import copy

import torch

FAILS = ["test_what_must_stay"]


def smooth(model, groups, maxima, alpha):
    new = copy.deepcopy(model)
    with torch.no_grad():
        for norm_name, names in groups.items():
            norm = new.get_submodule(norm_name)
            grouped = [name for names in groups.values() for name in names]
            ends = [name.rpartition(".")[2] for name in names]
            linears = [new.get_submodule(name) for name in names]
            s = smoothing_scales(maxima[names[0]], [m.weight for m in linears], alpha)  # noqa: F821
            norm.weight.div_(s)
            if getattr(norm, "bias", None) is not None:
                norm.bias.div_(s)
            for name, module in new.named_modules():
                alike = name.rpartition(".")[2] in ends and name not in grouped
                if name in names or alike:
                    module.weight.mul_(s)
    return new
