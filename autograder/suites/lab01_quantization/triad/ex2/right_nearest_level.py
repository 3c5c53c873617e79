"""No rounding at all: the nearest of all levels by distance, for each value."""

import torch


def quantize(x, scale, zero, bits, symmetric):
    low, high = (1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1) if symmetric else (0, 2**bits - 1)
    steps = torch.arange(low, high + 1, dtype=torch.float64) - zero.double()[..., None]
    levels = scale.double()[..., None] * steps  # [..., 2^b]
    nearest = (x.double()[..., None] - levels).abs().argmin(dim=-1) + low
    return nearest.to(torch.int8 if symmetric else torch.uint8)


def dequantize(codes, scale, zero):
    return torch.mul(torch.sub(codes.long(), zero.long()), scale.float())
