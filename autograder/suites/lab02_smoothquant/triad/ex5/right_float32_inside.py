"""Computes in float32 whatever the dtype of the parameters, and casts back."""

import copy

import torch


def smooth(model, groups, maxima, alpha):
    smoothed = copy.deepcopy(model)
    for norm_name, names in groups.items():
        norm = smoothed.get_submodule(norm_name)
        linears = [smoothed.get_submodule(name) for name in names]
        weights = [m.weight.detach().float() for m in linears]
        s = smoothing_scales(maxima[names[0]].float(), weights, alpha)  # noqa: F821
        with torch.no_grad():
            for p in (norm.weight, getattr(norm, "bias", None)):
                if p is not None:
                    p.copy_((p.float() / s).to(p.dtype))
            for linear, w in zip(linears, weights, strict=True):
                linear.weight.copy_((w * s[None, :]).to(linear.weight.dtype))
    return smoothed
