"""s multiplies the rows, which are outputs."""

import torch

FAILS = ["test_random_scales_against_float64"]


def scaled_round_trip(w, s, bits, group_size):
    if s.shape != w.shape[1:] or not ((s > 0) & torch.isfinite(s)).all():
        raise ValueError(s.shape)
    w_hat = dequantize_groups(*quantize_groups(w.float() * s[:, None], bits, group_size))  # noqa: F821
    return w_hat / s[:, None]
