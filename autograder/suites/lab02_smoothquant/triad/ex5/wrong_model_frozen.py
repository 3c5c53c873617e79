"""The model that came in is frozen."""

import copy

FAILS = ["test_parameters_against_float64"]


def smooth(model, groups, maxima, alpha):
    smoothed = copy.deepcopy(model)
    model.requires_grad_(False)
    for norm_name, names in groups.items():
        norm = smoothed.get_submodule(norm_name)
        linears = [smoothed.get_submodule(name) for name in names]
        weights = [linear.weight.detach() for linear in linears]
        s = smoothing_scales(maxima[names[0]], weights, alpha)  # noqa: F821 -- exercise 4
        norm.weight.data.div_(s)
        if getattr(norm, "bias", None) is not None:
            norm.bias.data.div_(s)
        for weight in weights:
            weight.mul_(s)
    return smoothed
