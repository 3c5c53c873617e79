"""Rows are outputs; the channels are columns."""

FAILS = ["test_kept_columns", "test_kept_against_float64"]


def keep_channels(w, channels, bits, group_size):
    w_hat = dequantize_groups(*quantize_groups(w, bits, group_size))  # noqa: F821 -- exercise 1
    w_hat[channels] = w[channels].float()
    return w_hat
