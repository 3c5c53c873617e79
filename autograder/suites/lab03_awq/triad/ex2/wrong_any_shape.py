"""The shape of s is not checked: one scale broadcasts to all channels."""

import torch

FAILS = ["test_scales_that_are_none"]


def scaled_round_trip(w, s, bits, group_size):
    if not ((s > 0) & torch.isfinite(s)).all():
        raise ValueError(s)
    return dequantize_groups(*quantize_groups(w.float() * s, bits, group_size)) / s  # noqa: F821
