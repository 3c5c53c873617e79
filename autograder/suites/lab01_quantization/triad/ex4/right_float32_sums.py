"""Sums in float32 by index_add_; the mean of equal values may be one rounding above them."""

import torch


def kmeans_codebook(values, bits, iterations):
    flat = values.reshape(-1).float()
    size = 2**bits
    c = torch.linspace(flat.min().item(), flat.max().item(), size)
    for _ in range(iterations):
        codes = torch.bucketize(flat, 0.5 * (c[1:] + c[:-1]))
        sums = torch.zeros(size).index_add_(0, codes, flat)
        counts = torch.zeros(size).index_add_(0, codes, torch.ones_like(flat))
        c = torch.where(counts > 0, sums / counts, c)
    return c, torch.bucketize(flat, 0.5 * (c[1:] + c[:-1])).reshape(values.shape)
