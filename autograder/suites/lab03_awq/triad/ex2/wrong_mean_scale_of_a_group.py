"""One scale for each group, the mean of its channels."""

import torch

FAILS = ["test_scaling_by_hand", "test_random_scales_against_float64"]


def scaled_round_trip(w, s, bits, group_size):
    if s.shape != w.shape[1:] or not ((s > 0) & torch.isfinite(s)).all():
        raise ValueError(s.shape)
    s = s.view(-1, group_size).mean(1).repeat_interleave(group_size)
    return dequantize_groups(*quantize_groups(w.float() * s, bits, group_size)) / s  # noqa: F821
