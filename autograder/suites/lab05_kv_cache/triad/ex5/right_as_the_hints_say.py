"""What help and hints say, word for word."""

import torch


def quantize(x, bits, group_size, direction):
    if direction not in ("channel", "token"):
        raise ValueError("direction")
    dim = {"channel": 2, "token": 3}[direction]
    if group_size < 1 or x.shape[dim] % group_size:
        raise ValueError("group_size")
    groups = x.float().unflatten(dim, (-1, group_size))
    low = groups.amin(dim + 1, keepdim=True)
    scale = (groups.amax(dim + 1, keepdim=True) - low) / (2**bits - 1)
    low, scale = low.half(), scale.half()
    divisor = torch.where(scale == 0, 1.0, scale.float())
    codes = ((groups - low.float()) / divisor).round().clamp(0, 2**bits - 1)
    codes = codes.masked_fill(scale == 0, 0)
    codes = codes.reshape(x.shape).to(torch.uint8)
    return codes, scale.squeeze(dim + 1), low.squeeze(dim + 1)


def dequantize(codes, scale, low, direction):
    dim = 2 if direction == "channel" else 3
    groups = codes.float().unflatten(dim, (scale.shape[dim], -1))
    x_hat = groups * scale.unsqueeze(dim + 1).float() + low.unsqueeze(dim + 1).float()
    return x_hat.reshape(codes.shape)
