"""clamp(min=1e-20) on the scale: still more than some ranges."""

import torch

FAILS = ["test_grid_follows_the_range"]


def affine_parameters(lo, hi, bits, symmetric):
    _, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    lo, hi = lo.float(), hi.float()
    if symmetric:
        scale = torch.maximum(lo.abs(), hi.abs()) / qmax
        return scale.clamp(min=1e-20), torch.zeros_like(scale).int()
    lo, hi = lo.clamp(max=0), hi.clamp(min=0)
    scale = (hi - lo) / qmax
    scale = scale.clamp(min=1e-20)
    return scale, torch.round(-lo / scale).int()
