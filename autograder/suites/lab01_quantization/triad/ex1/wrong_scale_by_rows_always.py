"""Takes every scale for one that belongs to rows."""

import torch

FAILS = ["test_bfloat16_and_shapes"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    if scale.ndim == 1:
        scale, zero = scale[:, None], zero[:, None]
    codes = (torch.round(x.float() / scale) + zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
