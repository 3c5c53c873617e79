"""The table of all distances, and a mask for every cluster."""

import torch


def kmeans_codebook(values, bits, iterations):
    flat = values.double().flatten()
    low, high = flat.min(), flat.max()
    centroids = low + (high - low) * torch.arange(2**bits, dtype=torch.float64) / (2**bits - 1)
    for step in range(iterations + 1):
        codes = (flat[:, None] - centroids[None, :]).abs().argmin(dim=1)
        if step == iterations:
            break
        for j in range(2**bits):
            members = flat[codes == j]
            if len(members) > 0:
                centroids[j] = members.mean()
    return centroids.float(), codes.reshape(values.shape).to(torch.uint8)
