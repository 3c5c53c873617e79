"""1e-12 is added to every scale, to be safe: a range of 1e-18 is lost in it."""

import torch

FAILS = ["test_group_of_zeros", "test_grid_follows_the_range"]


def affine_parameters(lo, hi, bits, symmetric):
    _, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    lo, hi = lo.float(), hi.float()
    if symmetric:
        scale = torch.maximum(lo.abs(), hi.abs()) / qmax
        return scale + 1e-12, torch.zeros_like(scale).int()
    lo, hi = lo.clamp(max=0), hi.clamp(min=0)
    scale = (hi - lo) / qmax
    scale = scale + 1e-12
    return scale, torch.round(-lo / scale).int()
