"""One-hot assignment and einsum for the sums, searchsorted for the codes."""

import torch
import torch.nn.functional as F


def kmeans_codebook(values, bits, iterations):
    flat = values.flatten().to(torch.float32)
    lo, hi = flat.min(), flat.max()
    size = 2**bits
    c = lo + (hi - lo) / (size - 1) * torch.arange(size)
    for _ in range(iterations):
        codes = torch.searchsorted((c[1:] + c[:-1]) / 2, flat)
        chosen = F.one_hot(codes, size).float()
        sums, counts = torch.einsum("nk,n->k", chosen, flat), torch.einsum("nk->k", chosen)
        moved = sums / counts.clamp(min=1)
        c = torch.where(counts == 0, c, moved)
    codes = torch.searchsorted((c[1:] + c[:-1]) / 2, flat)
    return c, codes.reshape(values.shape).to(torch.int32)
