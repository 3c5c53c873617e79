"""x_hat = s q - s z, and the clamp by torch.where before the shift."""

import torch


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    steps = torch.round(x.to(torch.float32) / scale)
    steps = torch.where(steps < qmin - zero, (qmin - zero).float(), steps)
    steps = torch.where(steps > qmax - zero, (qmax - zero).float(), steps)
    return (steps + zero).to(torch.int8 if symmetric else torch.uint8)


def dequantize(codes, scale, zero):
    return scale * codes.float() - scale * zero.float()
