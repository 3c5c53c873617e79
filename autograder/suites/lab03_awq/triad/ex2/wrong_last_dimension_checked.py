"""Scales of shape [1, K] or [N, K] pass: only the last dimension is checked."""

import torch

FAILS = ["test_output_error_by_hand", "test_scales_that_are_none"]


def scaled_round_trip(w, s, bits, group_size):
    if s.shape[-1] != w.shape[1] or not (torch.isfinite(s) & (s > 0)).all():
        raise ValueError("s")
    return dequantize_groups(*quantize_groups(w.float() * s, bits, group_size)) / s  # noqa: F821
