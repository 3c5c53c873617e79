"""alpha is checked, and then not used."""

import torch

FAILS = ["test_ends_of_alpha", "test_scales_against_float64"]


def smoothing_scales(x_max, weights, alpha):
    if not 0 <= alpha <= 1:
        raise ValueError("alpha")
    w_max = torch.cat([w.abs().float() for w in weights]).amax(dim=0)
    return (x_max.float().clamp(min=FLOOR) / w_max.clamp(min=FLOOR)).sqrt()  # noqa: F821
