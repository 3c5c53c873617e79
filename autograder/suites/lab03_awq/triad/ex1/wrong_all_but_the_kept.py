"""The kept columns are rounded and all others are kept."""

FAILS = ["test_kept_columns", "test_kept_against_float64"]


def keep_channels(w, channels, bits, group_size):
    w_hat = w.float().clone()
    rounded = dequantize_groups(*quantize_groups(w, bits, group_size))  # noqa: F821 -- ex1
    w_hat[:, channels] = rounded[:, channels]
    return w_hat
