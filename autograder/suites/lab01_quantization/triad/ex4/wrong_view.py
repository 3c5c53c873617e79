"""view(-1) on values that may not be contiguous."""

import torch

FAILS = ["test_shapes_and_types", "test_awkward_values"]


def kmeans_codebook(values, bits, iterations):
    flat = values.view(-1).float()
    size = 2**bits
    c = torch.linspace(flat.min().item(), flat.max().item(), size)
    for _ in range(iterations):
        codes = torch.bucketize(flat, (c[1:] + c[:-1]) / 2)
        count = torch.bincount(codes, minlength=size)
        total = torch.bincount(codes, weights=flat.double(), minlength=size)
        c = torch.where(count > 0, total / count.clamp(min=1), c.double()).float()
    codes = torch.bucketize(flat, (c[1:] + c[:-1]) / 2)
    return c, codes.reshape(values.shape)
