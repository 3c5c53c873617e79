"""A mask of the kept columns, and a sort for the ranks."""

import torch


def mean_magnitude(x):
    while x.dim() > 2:
        x = x.flatten(0, 1)
    x = x if x.dim() == 2 else x[None]
    return x.to(torch.float32).abs().sum(0) / x.shape[0]


def top_channels(score, fraction):
    if not (fraction > 0 and fraction <= 1):
        raise ValueError("fraction")
    count = max(round(fraction * score.numel()), 1)
    return torch.argsort(score, descending=True)[:count]


def keep_channels(w, channels, bits, group_size):
    kept = torch.zeros(w.shape[1], dtype=torch.bool)
    kept[channels] = True
    rounded = dequantize_groups(*quantize_groups(w, bits, group_size))  # noqa: F821 -- ex1
    return torch.where(kept, w.float(), rounded)
