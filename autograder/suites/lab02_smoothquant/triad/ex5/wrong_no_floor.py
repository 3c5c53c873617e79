"""A formula of its own, without FLOOR: a channel that is always 0 gives 0 or infinity."""

import copy

import torch

FAILS = ["test_parameters_against_float64"]


def smooth(model, groups, maxima, alpha):
    new = copy.deepcopy(model)
    with torch.no_grad():
        for norm_name, names in groups.items():
            norm = new.get_submodule(norm_name)
            linears = [new.get_submodule(name) for name in names]
            w_max = torch.cat([m.weight for m in linears]).float().abs().amax(0)
            s = maxima[names[0]] ** alpha / w_max ** (1 - alpha)
            norm.weight.div_(s)
            if getattr(norm, "bias", None) is not None:
                norm.bias.div_(s)
            for linear in linears:
                linear.weight.mul_(s)
    return new
