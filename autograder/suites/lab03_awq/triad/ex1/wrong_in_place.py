"""Writes into the weight that was given."""

FAILS = ["test_none_all_and_bfloat16"]


def keep_channels(w, channels, bits, group_size):
    w_hat = dequantize_groups(*quantize_groups(w, bits, group_size))  # noqa: F821 -- exercise 1
    w_hat[:, channels] = w[:, channels].float()
    w.copy_(w_hat)
    return w_hat
