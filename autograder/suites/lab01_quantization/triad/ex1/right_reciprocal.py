"""x * (1 / s) as in torchao, and torch.maximum and torch.minimum for the clamp."""

import torch


def quantize(x, scale, zero, bits, symmetric):
    low, high = (1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1) if symmetric else (0, 2**bits - 1)
    q = torch.round(x.float() * torch.reciprocal(scale)).double() + zero
    q = torch.minimum(torch.maximum(q, torch.tensor(low)), torch.tensor(high))
    return q.to(torch.int8) if symmetric else q.to(torch.uint8)


def dequantize(codes, scale, zero):
    return scale * (codes.float() - zero.float())
