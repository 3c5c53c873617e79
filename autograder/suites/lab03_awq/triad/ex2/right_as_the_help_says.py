"""The help, line by line."""

import torch


def scaled_round_trip(w, s, bits, group_size):
    if s.ndim != 1 or s.shape[0] != w.shape[1]:
        raise ValueError("shape")
    if not torch.all(s > 0) or not torch.all(s.isfinite()):
        raise ValueError("positive and finite")
    w = w.float()
    return dequantize_groups(*quantize_groups(w * s, bits, group_size)) / s  # noqa: F821


def output_error(x, w, w_hat):
    return ((x.float() @ (w_hat.float() - w.float()).T) ** 2).mean().item()
