"""Scales are clamped to a range that somebody found useful."""

import torch

FAILS = ["test_equal_scales_of_a_group"]


def scaled_round_trip(w, s, bits, group_size):
    if s.shape != w.shape[1:] or not ((s > 0) & torch.isfinite(s)).all():
        raise ValueError(s.shape)
    s = s.clamp(1e-2, 1e2)
    return dequantize_groups(*quantize_groups(w.float() * s, bits, group_size)) / s  # noqa: F821
