"""No clamp: the code of the largest weight can be 2^b, which is 0 in uint8 at 8 bits."""

import torch

FAILS = ["test_ends_of_the_range"]


def quantize_groups(w, bits, group_size):
    n, k = w.shape
    if group_size < 1 or k % group_size:
        raise ValueError(group_size)
    groups = w.float().reshape(n, k // group_size, group_size)
    lo = groups.amin(-1, keepdim=True).clamp(max=0)
    hi = groups.amax(-1, keepdim=True).clamp(min=0)
    scale = (hi - lo) / (2**bits - 1)
    scale = torch.where(scale > 0, scale, 1.0)
    zero = torch.round(-lo / scale)
    codes = (torch.round(groups / scale) + zero).int()
    return codes.reshape(n, k).to(torch.uint8), scale.squeeze(-1), zero.squeeze(-1).int()
