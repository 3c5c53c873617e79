"""The codebook is kept, and the next call with the same width starts from it."""

import torch

FAILS = ["test_codebook_of_each_call", "test_awkward_values"]


_kept = {}


def kmeans_codebook(values, bits, iterations):
    flat = values.flatten().float()
    size = 2**bits
    start = torch.linspace(flat.min().item(), flat.max().item(), size)
    c = _kept.get(bits, start)
    for _ in range(iterations):
        codes = torch.bucketize(flat, (c[1:] + c[:-1]) / 2)
        count = torch.bincount(codes, minlength=size)
        total = torch.bincount(codes, weights=flat.double(), minlength=size)
        c = torch.where(count > 0, total / count.clamp(min=1), c.double()).float()
    codes = torch.bucketize(flat, (c[1:] + c[:-1]) / 2)
    _kept[bits] = c
    return c, codes.reshape(values.shape)
