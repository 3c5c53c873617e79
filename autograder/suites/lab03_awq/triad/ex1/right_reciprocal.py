"""Multiplies by 1 / scale, and cuts the columns into blocks."""

import torch


def quantize_groups(w, bits, group_size):
    if group_size <= 0 or w.shape[1] % group_size > 0:
        raise ValueError(f"{group_size} does not divide {w.shape[1]}")
    codes, scales, zeros = [], [], []
    for block in w.float().split(group_size, dim=1):
        lo, hi = block.aminmax(dim=1, keepdim=True)
        lo, hi = torch.minimum(lo, torch.zeros_like(lo)), torch.maximum(hi, torch.zeros_like(hi))
        scale = (hi - lo) / (2**bits - 1)
        scale[scale == 0] = 1.0
        zero = (-lo * (1 / scale)).round()
        codes.append((block * (1 / scale)).round().add(zero).clamp(0, 2**bits - 1).to(torch.uint8))
        scales.append(scale)
        zeros.append(zero.to(torch.int32))
    return tuple(torch.cat(parts, dim=1) for parts in (codes, scales, zeros))


def dequantize_groups(codes, scale, zero):
    blocks = codes.long().chunk(scale.shape[1], dim=1)
    parts = [(b - zero[:, i : i + 1]) * scale[:, i : i + 1] for i, b in enumerate(blocks)]
    return torch.cat(parts, dim=1)
