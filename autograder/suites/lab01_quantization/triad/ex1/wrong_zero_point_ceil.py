"""z is rounded up."""

import torch

FAILS = ["test_grid_of_each_call", "test_widths_that_do_not_exist"]


def affine_parameters(lo, hi, bits, symmetric):
    _, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    lo, hi = lo.float(), hi.float()
    if symmetric:
        scale = torch.maximum(lo.abs(), hi.abs()) / qmax
        return torch.where(scale > 0, scale, 1.0), torch.zeros_like(scale).int()
    lo, hi = lo.clamp(max=0), hi.clamp(min=0)
    scale = (hi - lo) / qmax
    scale = torch.where(scale > 0, scale, 1.0)
    return scale, torch.ceil(-lo / scale - 1e-4).int()
