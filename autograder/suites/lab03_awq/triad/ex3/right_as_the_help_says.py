"""The help, line by line."""

import torch


def candidate_scales(x_mean, ratio):
    s = torch.clamp(x_mean**ratio, min=FLOOR)  # noqa: F821 -- of the lab's set-up
    return s / torch.sqrt(torch.max(s) * torch.min(s))


def search_scales(x_mean, weights, block, bits, group_size):
    exact = block(weights)
    losses = []
    for ratio in RATIOS:  # noqa: F821
        s = candidate_scales(x_mean, ratio)
        y = block([scaled_round_trip(w, s, bits, group_size) for w in weights])  # noqa: F821
        losses.append(torch.mean((y.float() - exact.float()) ** 2).item())
    best = losses.index(min(losses))
    return candidate_scales(x_mean, RATIOS[best]), RATIOS[best], losses  # noqa: F821
