"""z counted from the upper end, -lo for |lo|, masks filled in place, no division of tensors."""

import torch


def affine_parameters(lo, hi, bits, symmetric):
    _, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    lo, hi = lo.float().clone(), hi.float().clone()
    if symmetric:
        scale = torch.max(-lo, hi).mul_(torch.tensor(float(qmax)).reciprocal())
        scale[scale == 0] = 3.0
        return scale, torch.zeros(lo.shape, dtype=torch.int32)
    lo.clamp_(max=0)
    hi.clamp_(min=0)
    scale = (hi - lo).mul_(torch.tensor(float(qmax)).reciprocal())
    empty = scale == 0
    scale.masked_fill_(empty, 3.0)
    zero = qmax - hi * scale.reciprocal()
    return scale, zero.masked_fill_(empty, 0).round_().to(torch.int32)
