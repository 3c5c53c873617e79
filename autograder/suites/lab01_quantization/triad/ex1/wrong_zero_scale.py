"""No guard for a range of 0: s = 0, and z = round(0 / 0)."""

import torch

FAILS = ["test_group_of_zeros"]


def affine_parameters(lo, hi, bits, symmetric):
    _, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    lo, hi = lo.float(), hi.float()
    if symmetric:
        scale = torch.maximum(lo.abs(), hi.abs()) / qmax
        return scale, torch.zeros_like(scale).int()
    lo, hi = lo.clamp(max=0), hi.clamp(min=0)
    scale = (hi - lo) / qmax
    return scale, torch.round(-lo / scale).int()
