"""Powers and the normalization in logarithms; keeps the best as it goes."""

import math

import torch


def candidate_scales(x_mean, ratio):
    log = ratio * x_mean.double().clamp(min=1e-300).log() if ratio else torch.zeros(len(x_mean))
    log = log.double().clamp(min=math.log(1e-4))
    return (log - (log.max() + log.min()) / 2).exp().float()


def search_scales(x_mean, weights, block, bits, group_size):
    target = block(weights).double()
    best, least, losses = None, math.inf, []
    for i in range(20):
        s = candidate_scales(x_mean, i / 20)
        rounded = []
        for w in weights:
            rounded.append(scaled_round_trip(w, s, bits, group_size))  # noqa: F821 -- exercise 3
        losses.append(float(((block(rounded).double() - target) ** 2).mean()))
        if losses[-1] < least:
            best, least = (s, i / 20), losses[-1]
    return best[0], best[1], losses
