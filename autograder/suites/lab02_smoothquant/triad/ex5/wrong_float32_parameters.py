"""Everything becomes float32 on the way."""

import copy

import torch

FAILS = ["test_parameters_stay_parameters"]


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
                linear.weight = torch.nn.Parameter(linear.weight.float() * s)
                if linear.bias is not None:
                    linear.bias = torch.nn.Parameter(linear.bias.float())
                linear.register_forward_pre_hook(lambda m, args: (args[0].float(),))
                linear.register_forward_hook(lambda m, args, out: out.double())
    return smoothed
