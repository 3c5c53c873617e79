"""Kept columns are taken out before the rounding, so the ranges shrink."""

FAILS = ["test_kept_columns", "test_kept_against_float64"]


def keep_channels(w, channels, bits, group_size):
    rest = w.float().clone()
    rest[:, channels] = 0
    w_hat = dequantize_groups(*quantize_groups(rest, bits, group_size))  # noqa: F821 -- ex1
    w_hat[:, channels] = w[:, channels].float()
    return w_hat
