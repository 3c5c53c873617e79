"""The help, line by line."""

import torch


def quantize_groups(w, bits, group_size):
    if group_size < 1 or w.shape[1] % group_size:
        raise ValueError("group_size")
    groups = w.float().reshape(w.shape[0], w.shape[1] // group_size, group_size)
    lo = torch.minimum(groups.min(dim=-1, keepdim=True).values, torch.tensor(0.0))
    hi = torch.maximum(groups.max(dim=-1, keepdim=True).values, torch.tensor(0.0))
    scale = (hi - lo) / (2**bits - 1)
    scale = torch.where(scale == 0, 1, scale)
    zero = torch.round(-lo / scale)
    codes = torch.clamp(torch.round(groups / scale) + zero, 0, 2**bits - 1).to(torch.uint8)
    return codes.reshape(w.shape), scale[..., 0], zero[..., 0].to(torch.int32)


def dequantize_groups(codes, scale, zero):
    groups = codes.to(torch.int32).reshape(codes.shape[0], scale.shape[1], -1)
    return ((groups - zero[..., None]) * scale[..., None]).reshape(codes.shape)
