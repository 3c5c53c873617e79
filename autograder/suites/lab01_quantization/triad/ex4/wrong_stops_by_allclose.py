"""Stops once torch.allclose finds no change: its atol of 1e-8 is much for small values."""

import torch

FAILS = ["test_iterations_one_by_one"]


def kmeans_codebook(values, bits, iterations):
    flat = values.reshape(-1).float()
    size = 2**bits
    codebook = torch.linspace(flat.min().item(), flat.max().item(), size)
    for _ in range(iterations):
        codes = torch.bucketize(flat, (codebook[1:] + codebook[:-1]) / 2)
        counts = torch.bincount(codes, minlength=size)
        sums = torch.bincount(codes, weights=flat.double(), minlength=size)
        moved = torch.where(counts > 0, (sums / counts).float(), codebook)
        if torch.allclose(moved, codebook):
            break
        codebook = moved
    codes = torch.bucketize(flat, (codebook[1:] + codebook[:-1]) / 2)
    return codebook, codes.reshape(values.shape)
