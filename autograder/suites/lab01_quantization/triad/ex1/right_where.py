"""torch.where in place of a division by 0, symmetric and not one after the other."""

import torch


def affine_parameters(lo, hi, bits, symmetric):
    _, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    lo, hi = lo.float(), hi.float()
    if symmetric:
        scale = torch.maximum(lo.abs(), hi.abs()) / qmax
        return torch.where(scale > 0, scale, 1.0), torch.zeros_like(scale).int()
    lo, hi = lo.clamp(max=0), hi.clamp(min=0)
    scale = (hi - lo) / qmax
    scale = torch.where(scale > 0, scale, 1.0)
    return scale, torch.round(-lo / scale).int()


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    codes = (torch.round(x.float() / scale) + zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)


def dequantize(codes, scale, zero):
    return (codes.float() - zero.float()) * scale
