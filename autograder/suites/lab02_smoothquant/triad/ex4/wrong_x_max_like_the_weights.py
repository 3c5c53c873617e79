"""x_max in float32 is taken to the dtype of the weights."""

import torch

FAILS = ["test_scales_of_bfloat16"]


def smoothing_scales(x_max, weights, alpha):
    if not 0 <= alpha <= 1:
        raise ValueError(alpha)
    w_max = torch.cat([w.abs().float() for w in weights]).amax(dim=0)
    return x_max.to(weights[0].dtype).float().clamp(min=1e-5) ** alpha / w_max.clamp(min=1e-5) ** (
        1 - alpha
    )
