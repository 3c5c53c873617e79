""" "channels" and "tokens" are taken too."""

import torch
from torch import Tensor

FAILS = ["test_views_and_what_does_not_divide"]


def quantize(x: Tensor, bits: int, group_size: int, direction: str) -> tuple:
    """(codes [B, H, S, d] uint8, scale, low), the latter float16 and one for each group.

    Raises ValueError for another direction, or groups that do not divide the dimension.
    """
    direction = direction.rstrip("s")
    if direction not in ("channel", "token"):
        raise ValueError(f"direction={direction!r}")
    dim = 2 if direction == "channel" else 3
    if group_size < 1 or x.shape[dim] % group_size:
        raise ValueError(f"groups of {group_size} do not divide {tuple(x.shape)}")
    groups = x.float().unflatten(dim, (-1, group_size))
    low, high = (f(dim + 1, keepdim=True) for f in (groups.amin, groups.amax))
    scale, low = ((high - low) / (2**bits - 1)).half(), low.half()
    step = torch.where(scale > 0, scale.float(), 1.0)
    codes = ((groups - low.float()) / step).round().clamp(0, 2**bits - 1)
    codes = torch.where(scale > 0, codes, 0)
    return codes.reshape(x.shape).to(torch.uint8), scale.squeeze(dim + 1), low.squeeze(dim + 1)
