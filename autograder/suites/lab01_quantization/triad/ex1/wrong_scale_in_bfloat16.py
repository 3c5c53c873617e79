"""The scale is rounded to the dtype of the bounds: 8 significant bits for bfloat16."""

import torch

FAILS = ["test_bfloat16_and_missing_widths", "test_bfloat16_bounds"]


def affine_parameters(lo, hi, bits, symmetric):
    _, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    kind, lo, hi = lo.dtype, lo.float(), hi.float()
    if symmetric:
        scale = torch.maximum(lo.abs(), hi.abs()) / qmax
        return torch.where(scale > 0, scale, 1.0).to(kind).float(), torch.zeros_like(scale).int()
    lo, hi = lo.clamp(max=0), hi.clamp(min=0)
    scale = (hi - lo) / qmax
    scale = torch.where(scale > 0, scale, 1.0)
    return scale.to(kind).float(), torch.round(-lo / scale).int()
