"""Ties are rounded up, and codes come from the distance to the lowest level."""

import torch


def quantize_groups(w, bits, group_size):
    rows, columns = w.shape
    if group_size < 1 or columns % group_size != 0:
        raise ValueError(f"{columns} columns, groups of {group_size}")
    groups = w.to(torch.float32).unflatten(-1, (columns // group_size, group_size))
    low, high = torch.aminmax(groups, dim=-1)
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    scale = (high - low) / float(2**bits - 1)
    scale[scale == 0] = 1.0
    zero = torch.floor(-low / scale + 0.5)
    codes = torch.floor(groups / scale.unsqueeze(-1) + 0.5) + zero.unsqueeze(-1)
    codes = torch.minimum(codes.clamp_min(0.0), torch.tensor(2.0**bits - 1))
    return codes.flatten(1).byte(), scale, zero.int()


def dequantize_groups(codes, scale, zero):
    size = codes.shape[1] // scale.shape[1]
    return (codes.float() - zero.repeat_interleave(size, 1)) * scale.repeat_interleave(size, 1)
