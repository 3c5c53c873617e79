"""Sorts once; a cluster is then a slice, and its mean a difference of two running sums."""

import torch


def kmeans_codebook(values, bits, iterations):
    flat = values.reshape(-1).to(torch.float64)
    ordered, order = torch.sort(flat)
    running = torch.cat([torch.zeros(1, dtype=torch.float64), ordered.cumsum(0)])
    c = torch.linspace(ordered[0].item(), ordered[-1].item(), 2**bits, dtype=torch.float64)

    def boundaries():
        inner = torch.searchsorted(ordered, (c[:-1] + c[1:]) / 2, right=True)
        ends = torch.tensor([len(ordered)])
        return torch.cat([torch.zeros(1, dtype=torch.long), inner, ends])

    for _ in range(iterations):
        edge = boundaries()
        count = edge[1:] - edge[:-1]
        total = running[edge[1:]] - running[edge[:-1]]
        c = torch.where(count > 0, total / count.clamp(min=1), c)
    edge = boundaries()
    codes = torch.empty(len(flat), dtype=torch.long)
    codes[order] = torch.repeat_interleave(torch.arange(2**bits), edge[1:] - edge[:-1])
    return c.float(), codes.reshape(values.shape)
