"""The range is not stretched to 0 and z is clamped, as a published quantizer does."""

import torch

FAILS = ["test_one_sided_and_small_groups"]


def quantize_groups(w, bits, group_size):
    n, k = w.shape
    if group_size < 1 or k % group_size:
        raise ValueError(group_size)
    groups = w.float().reshape(n, k // group_size, group_size)
    lo, hi = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale = (hi - lo) / (2**bits - 1)
    scale = torch.where(scale > 0, scale, 1.0)
    zero = torch.round(-lo / scale).clamp(0, 2**bits - 1)
    codes = (torch.round(groups / scale) + zero).clamp(0, 2**bits - 1)
    return codes.reshape(n, k).to(torch.uint8), scale.squeeze(-1).float(), zero.squeeze(-1).int()
