"""The arithmetic has the dtype of the weight."""

import torch

FAILS = ["test_transposed_and_bfloat16"]


def quantize_groups(w, bits, group_size):
    n, k = w.shape
    if group_size < 1 or k % group_size:
        raise ValueError(group_size)
    groups = w.reshape(n, k // group_size, group_size)
    lo = groups.amin(-1, keepdim=True).clamp(max=0)
    hi = groups.amax(-1, keepdim=True).clamp(min=0)
    scale = (hi - lo) / (2**bits - 1)
    scale = torch.where(scale > 0, scale, 1.0)
    zero = torch.round(-lo / scale)
    codes = (torch.round(groups / scale) + zero).clamp(0, 2**bits - 1)
    return codes.reshape(n, k).to(torch.uint8), scale.squeeze(-1).float(), zero.squeeze(-1).int()
