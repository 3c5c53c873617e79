"""The help, line by line, with flatten(0, -2)."""


def mean_magnitude(x):
    return x.float().abs().flatten(0, -2).mean(0)


def top_channels(score, fraction):
    if not (fraction > 0 and fraction <= 1):
        raise ValueError("fraction")
    return score.topk(max(1, round(fraction * score.shape[0]))).indices


def keep_channels(w, channels, bits, group_size):
    w_hat = dequantize_groups(*quantize_groups(w, bits, group_size))  # noqa: F821 -- exercise 1
    w_hat[:, channels] = w[:, channels].float()
    return w_hat
