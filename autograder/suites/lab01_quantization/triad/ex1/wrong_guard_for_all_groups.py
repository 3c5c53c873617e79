"""One group of zeros, and all groups get the scale 1."""

import torch

FAILS = ["test_group_of_zeros", "test_grid_follows_the_range"]


def affine_parameters(lo, hi, bits, symmetric):
    _, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    lo, hi = lo.float(), hi.float()
    if symmetric:
        scale = torch.maximum(lo.abs(), hi.abs()) / qmax
        return scale if (scale > 0).all() else torch.ones_like(scale), torch.zeros_like(scale).int()
    lo, hi = lo.clamp(max=0), hi.clamp(min=0)
    scale = (hi - lo) / qmax
    scale = scale if (scale > 0).all() else torch.ones_like(scale)
    return scale, torch.round(-lo / scale).int()
