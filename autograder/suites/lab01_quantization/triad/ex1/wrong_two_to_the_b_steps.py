"""2^b steps between 2^b codes: the fence-post error."""

import torch

FAILS = ["test_grid_by_hand", "test_asymmetric_range", "test_parameters_of_every_width"]


def affine_parameters(lo, hi, bits, symmetric):
    code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    lo, hi = lo.float(), hi.float()
    if symmetric:
        scale = torch.maximum(lo.abs(), hi.abs()) / 2 ** (bits - 1)
        return torch.where(scale > 0, scale, 1.0), torch.zeros_like(scale).int()
    lo, hi = lo.clamp(max=0), hi.clamp(min=0)
    scale = torch.where(hi > lo, (hi - lo) / 2**bits, 1.0)
    return scale, torch.round(-lo / scale).clamp(0, 2**bits - 1).int()
