"""Empty centroids become 0; at the end the codebook is sorted, but not the codes."""

import torch

FAILS = ["test_centroids_without_values", "test_awkward_values"]


def kmeans_codebook(values, bits, iterations):
    flat = values.flatten().float()
    size = 2**bits
    c = torch.linspace(flat.min().item(), flat.max().item(), size)
    for _ in range(iterations):
        codes = (flat[:, None] - c).abs().argmin(1)
        count = torch.bincount(codes, minlength=size)
        total = torch.bincount(codes, weights=flat.double(), minlength=size)
        c = torch.where(count > 0, total / count.clamp(min=1), 0.0).float()
    codes = (flat[:, None] - c).abs().argmin(1)
    return c.sort().values, codes.reshape(values.shape)
