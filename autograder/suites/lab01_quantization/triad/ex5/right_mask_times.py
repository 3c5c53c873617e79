"""Multiplies the straight-through term by the mask."""

import torch


def fake_quantize(x, scale, zero, bits, symmetric):
    low, high = (1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1) if symmetric else (0, 2**bits - 1)
    x32 = x.to(torch.float32)
    code = torch.round(x32.detach() / scale) + zero
    mask = ((code - code.clamp(low, high)) == 0).float()
    value = scale * (code.clamp(low, high) - zero)
    return value + mask * (x32 - x32.detach())
