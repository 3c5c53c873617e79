"""Only 0 is refused."""

import torch

FAILS = ["test_output_error_by_hand", "test_scales_that_are_none"]


def scaled_round_trip(w, s, bits, group_size):
    if s.shape != w.shape[1:] or (s == 0).any() or not torch.isfinite(s).all():
        raise ValueError(s)
    return dequantize_groups(*quantize_groups(w.float() * s, bits, group_size)) / s  # noqa: F821
