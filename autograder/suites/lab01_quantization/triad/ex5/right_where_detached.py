"""x where it is inside and x.detach() where it is clipped, plus the difference without
gradient."""

import torch


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    x_hat = dequantize(  # noqa: F821 -- exercise 1
        quantize(x, scale, zero, bits, symmetric),  # noqa: F821 -- exercise 1
        scale,
        zero,
    ).detach()
    x = x.float()
    place = torch.round(x / scale) + zero
    clipped = (place < qmin) | (place > qmax)
    x = torch.where(clipped, x.detach(), x)
    return x + (x_hat - x).detach()
