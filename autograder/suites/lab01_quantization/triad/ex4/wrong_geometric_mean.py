"""Geometric means of the magnitudes."""

import torch

FAILS = ["test_centroids_are_means", "test_runs_until_nothing_moves"]


def kmeans_codebook(values, bits, iterations):
    flat = values.flatten().float()
    size = 2**bits
    c = torch.linspace(flat.min().item(), flat.max().item(), size)
    logs = flat.double().abs().clamp(min=1e-9).log()
    for _ in range(iterations):
        codes = torch.bucketize(flat, (c[1:] + c[:-1]) / 2)
        count = torch.bincount(codes, minlength=size)
        total = torch.bincount(codes, weights=logs, minlength=size)
        mean = (total / count.clamp(min=1)).exp() * c.sign()
        c = torch.where(count > 0, mean, c.double()).float()
    codes = torch.bucketize(flat, (c[1:] + c[:-1]) / 2)
    return c, codes.reshape(values.shape)
