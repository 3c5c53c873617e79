"""Own formulas, and of the widths that do not exist only symmetric 1 bit is refused."""

import torch

FAILS = ["test_bfloat16_and_missing_widths", "test_widths_that_do_not_exist"]


def affine_parameters(lo, hi, bits, symmetric):
    if symmetric and bits == 1:
        raise ValueError("1 bit")
    qmax = max(2 ** (bits - 1) - 1, 1) if symmetric else max(int(2**bits) - 1, 1)
    lo, hi = lo.float(), hi.float()
    if symmetric:
        scale = torch.maximum(lo.abs(), hi.abs()) / qmax
        return torch.where(scale > 0, scale, 1.0), torch.zeros_like(scale).int()
    lo, hi = lo.clamp(max=0), hi.clamp(min=0)
    scale = (hi - lo) / qmax
    scale = torch.where(scale > 0, scale, 1.0)
    return scale, torch.round(-lo / scale).int()
