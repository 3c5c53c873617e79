"""The hints, step by step: the sums are float32, as torch.bincount gives them."""

import torch


def kmeans_codebook(values, bits, iterations):
    flat = values.flatten().float()
    c = torch.linspace(flat.min(), flat.max(), 2**bits)
    for _ in range(iterations):
        codes = torch.bucketize(flat, (c[:-1] + c[1:]) / 2)
        counts = torch.bincount(codes, minlength=2**bits)
        sums = torch.bincount(codes, weights=flat, minlength=2**bits)
        c = torch.where(counts > 0, sums / counts, c)
    codes = torch.bucketize(flat, (c[:-1] + c[1:]) / 2)
    return c, codes.reshape(values.shape)
