"""One group after the other, with plain numbers."""

import torch


def quantize_groups(w, bits, group_size):
    n, k = w.shape
    if group_size < 1 or k % group_size != 0:
        raise ValueError("the group size must divide the number of inputs")
    codes = torch.empty(n, k, dtype=torch.uint8)
    scale = torch.empty(n, k // group_size)
    zero = torch.empty(n, k // group_size, dtype=torch.int32)
    for i in range(n):
        for g in range(k // group_size):
            part = w[i, g * group_size : (g + 1) * group_size].to(torch.float32)
            low, high = min(part.min().item(), 0.0), max(part.max().item(), 0.0)
            step = (high - low) / (2**bits - 1) or 1.0
            scale[i, g] = step
            step = scale[i, g]
            zero[i, g] = torch.round(-torch.tensor(low) / step).int()
            q = torch.round(part / step) + zero[i, g]
            codes[i, g * group_size : (g + 1) * group_size] = q.clamp(0, 2**bits - 1).byte()
    return codes, scale, zero


def dequantize_groups(codes, scale, zero):
    size = codes.shape[1] // scale.shape[1]
    step, z = (t.repeat_interleave(size, dim=1) for t in (scale, zero))
    return (codes.float() - z.float()) * step
