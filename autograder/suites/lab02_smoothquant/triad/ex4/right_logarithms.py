"""In logarithms: alpha interpolates between two of them."""

import torch


def smoothing_scales(x_max, weights, alpha):
    if not 0 <= alpha <= 1:
        raise ValueError(f"{alpha} is not in 0..1")
    w_max = weights[0].double().abs().max(dim=0).values
    for w in weights[1:]:
        w_max = torch.maximum(w_max, w.double().abs().max(dim=0).values)
    log_x, log_w = x_max.double().clamp(min=1e-5).log(), w_max.clamp(min=1e-5).log()
    return torch.exp(alpha * log_x - (1 - alpha) * log_w).float()
