"""The help of the card, word for word."""

import torch


def smoothing_scales(x_max, weights, alpha):
    if not (0 <= alpha <= 1):
        raise ValueError("alpha")
    x_max, weights = x_max.float(), [w.float() for w in weights]
    w_max = torch.cat(weights).abs().amax(0)
    return x_max.clamp(min=FLOOR) ** alpha / w_max.clamp(min=FLOOR) ** (1 - alpha)  # noqa: F821
