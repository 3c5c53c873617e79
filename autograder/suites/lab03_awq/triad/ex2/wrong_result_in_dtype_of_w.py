"""The result has the dtype of w."""

import torch

FAILS = ["test_scaling_by_hand"]


def scaled_round_trip(w, s, bits, group_size):
    if s.shape != (w.shape[1],) or not (torch.isfinite(s) & (s > 0)).all():
        raise ValueError("s")
    return (dequantize_groups(*quantize_groups(w.float() * s, bits, group_size)) / s).to(w.dtype)  # noqa: F821
