"""Sums and counts of clusters by bincount, the nearest center by its borders."""

import torch


def kmeans_codebook(values, bits, iterations):
    flat = values.flatten().float()
    size = 2**bits
    c = torch.linspace(flat.min().item(), flat.max().item(), size)
    for _ in range(iterations):
        codes = torch.bucketize(flat, (c[1:] + c[:-1]) / 2)
        count = torch.bincount(codes, minlength=size)
        total = torch.bincount(codes, weights=flat.double(), minlength=size)
        c = torch.where(count > 0, total / count.clamp(min=1), c.double()).float()
    codes = torch.bucketize(flat, (c[1:] + c[:-1]) / 2)
    return c, codes.reshape(values.shape)
