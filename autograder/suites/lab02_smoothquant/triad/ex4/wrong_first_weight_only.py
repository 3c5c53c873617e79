"""Looks at the first weight and forgets the others."""

FAILS = ["test_weights_share_the_scales", "test_scales_against_float64"]


def smoothing_scales(x_max, weights, alpha):
    if not 0 <= alpha <= 1:
        raise ValueError(alpha)
    w_max = weights[0].abs().float().amax(dim=0)
    return x_max.float().clamp(min=1e-5) ** alpha / w_max.clamp(min=1e-5) ** (1 - alpha)
