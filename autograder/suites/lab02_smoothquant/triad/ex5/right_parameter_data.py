"""By named parameters and .data, with the inverse of s."""

import copy


def smooth(model, groups, maxima, alpha):
    clone = copy.deepcopy(model)
    parameters = dict(clone.named_parameters())
    for norm, readers in groups.items():
        weights = [parameters[f"{name}.weight"].data for name in readers]
        s = smoothing_scales(maxima[readers[0]], weights, alpha).double()  # noqa: F821
        for name, parameter in parameters.items():
            owner, _, leaf = name.rpartition(".")
            if owner == norm:
                parameter.data = (parameter.data.double() / s).to(parameter.dtype)
            elif owner in readers and leaf == "weight":
                parameter.data = (parameter.data.double() * s).to(parameter.dtype)
    return clone
