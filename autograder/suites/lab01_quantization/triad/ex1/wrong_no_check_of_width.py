"""Own formulas for the codes, without the check: symmetric 1 bit divides by 0."""

import torch

FAILS = ["test_widths_that_do_not_exist"]


def affine_parameters(lo, hi, bits, symmetric):
    lo, hi = lo.float(), hi.float()
    if symmetric:
        scale = torch.maximum(lo.abs(), hi.abs()) / max(2 ** (bits - 1) - 1, 1e-9)
        return torch.where(scale > 0, scale, 1.0), torch.zeros_like(scale).int()
    lo, hi = lo.clamp(max=0), hi.clamp(min=0)
    scale = torch.where(hi > lo, (hi - lo) / max(2**bits - 1, 1), 1.0)
    return scale, torch.round(-lo / scale).int()
