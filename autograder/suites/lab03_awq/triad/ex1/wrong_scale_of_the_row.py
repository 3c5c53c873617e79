"""One range for the whole row, repeated for every group."""

import torch

FAILS = ["test_groups_by_hand", "test_error_within_half_a_step", "test_every_group_against_float64"]


def quantize_groups(w, bits, group_size):
    n, k = w.shape
    if group_size < 1 or k % group_size:
        raise ValueError(group_size)
    groups = w.float().reshape(n, k // group_size, group_size)
    lo = groups.amin((1, 2), keepdim=True).clamp(max=0).expand(-1, k // group_size, 1)
    hi = groups.amax((1, 2), keepdim=True).clamp(min=0).expand(-1, k // group_size, 1)
    scale = (hi - lo) / (2**bits - 1)
    scale = torch.where(scale > 0, scale, 1.0)
    zero = torch.round(-lo / scale)
    codes = (torch.round(groups / scale) + zero).clamp(0, 2**bits - 1)
    return codes.reshape(n, k).to(torch.uint8), scale.squeeze(-1).float(), zero.squeeze(-1).int()
