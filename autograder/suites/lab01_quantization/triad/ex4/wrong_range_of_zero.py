"""Values are scaled to 0..1 first: 0 / 0 if all are equal."""

import torch

FAILS = ["test_awkward_values"]


def kmeans_codebook(values, bits, iterations):
    flat = values.flatten().float()
    lo, width = flat.min(), flat.max() - flat.min()
    flat = (flat - lo) / width
    size = 2**bits
    c = torch.linspace(0, 1, size)
    for _ in range(iterations):
        codes = torch.bucketize(flat, (c[1:] + c[:-1]) / 2)
        count = torch.bincount(codes, minlength=size)
        total = torch.bincount(codes, weights=flat.double(), minlength=size)
        c = torch.where(count > 0, total / count.clamp(min=1), c.double()).float()
    codes = torch.bucketize(flat, (c[1:] + c[:-1]) / 2)
    return c * width + lo, codes.reshape(values.shape)
