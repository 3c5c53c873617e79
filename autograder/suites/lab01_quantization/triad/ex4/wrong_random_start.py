"""Starts from random values: large weights may get no centroid, and no two runs agree."""

import torch

FAILS = ["test_lecture_example"]


def kmeans_codebook(values, bits, iterations):
    flat = values.flatten().float()
    size = 2**bits
    c = flat[torch.randint(len(flat), (size,))].sort().values
    for _ in range(iterations):
        codes = torch.bucketize(flat, (c[1:] + c[:-1]) / 2)
        count = torch.bincount(codes, minlength=size)
        total = torch.bincount(codes, weights=flat.double(), minlength=size)
        c = torch.where(count > 0, total / count.clamp(min=1), c.double()).float()
    return c, torch.bucketize(flat, (c[1:] + c[:-1]) / 2).reshape(values.shape)
