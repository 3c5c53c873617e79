"""A reshape whose last dimension are not neighbours: every (K/G)-th column is in a group."""

import torch

FAILS = ["test_groups_by_hand", "test_every_group_against_float64"]


def quantize_groups(w, bits, group_size):
    n, k = w.shape
    if group_size < 1 or k % group_size:
        raise ValueError(group_size)
    groups = w.float().reshape(n, group_size, k // group_size).transpose(1, 2)
    lo = groups.amin(-1, keepdim=True).clamp(max=0)
    hi = groups.amax(-1, keepdim=True).clamp(min=0)
    scale = (hi - lo) / (2**bits - 1)
    scale = torch.where(scale > 0, scale, 1.0)
    zero = torch.round(-lo / scale)
    codes = (torch.round(groups / scale) + zero).clamp(0, 2**bits - 1)
    return (
        codes.transpose(1, 2).reshape(n, k).to(torch.uint8),
        scale.squeeze(-1).float(),
        zero.squeeze(-1).int(),
    )
