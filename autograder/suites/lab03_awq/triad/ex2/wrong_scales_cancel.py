"""s is divided out again before the rounding."""

import torch

FAILS = ["test_scaling_by_hand", "test_error_falls_with_s", "test_random_scales_against_float64"]


def scaled_round_trip(w, s, bits, group_size):
    if s.shape != w.shape[1:] or not ((s > 0) & torch.isfinite(s)).all():
        raise ValueError(s.shape)
    return dequantize_groups(*quantize_groups(w.float() * s / s, bits, group_size))  # noqa: F821
