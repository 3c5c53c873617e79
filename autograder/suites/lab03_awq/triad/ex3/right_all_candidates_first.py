"""All candidates, all weights, all outputs, then one argmin."""

import torch


def candidate_scales(x_mean, ratio):
    s = torch.maximum(torch.pow(x_mean, ratio), torch.full_like(x_mean, FLOOR))  # noqa: F821
    largest, smallest = torch.aminmax(s)[::-1]
    return s / torch.sqrt(largest) / torch.sqrt(smallest)


def search_scales(x_mean, weights, block, bits, group_size):
    exact = block(list(weights))
    scales = [candidate_scales(x_mean, r) for r in RATIOS]  # noqa: F821 -- given
    trips = [
        [scaled_round_trip(w, s, bits, group_size) for w in weights]  # noqa: F821 -- exercise 3
        for s in scales
    ]
    exact = exact.float()
    losses = [torch.nn.functional.mse_loss(block(ws).float(), exact).item() for ws in trips]
    i = min(range(20), key=lambda i: losses[i])
    return scales[i], RATIOS[i], losses  # noqa: F821
