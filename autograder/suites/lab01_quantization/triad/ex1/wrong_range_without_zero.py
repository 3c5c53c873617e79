"""lo and hi as they come, the zero point clamped: groups of one sign collapse (AWQ's quantizer)."""

import torch

FAILS = ["test_asymmetric_range", "test_range_on_one_side_of_zero"]


def affine_parameters(lo, hi, bits, symmetric):
    _, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    lo, hi = lo.float(), hi.float()
    if symmetric:
        scale = torch.maximum(lo.abs(), hi.abs()) / qmax
        return torch.where(scale > 0, scale, 1.0), torch.zeros_like(scale).int()
    scale = torch.where(hi > lo, (hi - lo) / qmax, 1.0)
    return scale, torch.round(-lo / scale).clamp(0, qmax).int()
