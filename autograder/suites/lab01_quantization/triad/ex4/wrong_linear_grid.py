"""The centroids never move: this is linear quantization."""

import torch

FAILS = ["test_lecture_example", "test_centroids_are_means"]


def kmeans_codebook(values, bits, iterations):
    flat = values.flatten().float()
    codebook = torch.linspace(flat.min().item(), flat.max().item(), 2**bits)
    codes = torch.bucketize(flat, (codebook[1:] + codebook[:-1]) / 2)
    return codebook, codes.reshape(values.shape)
