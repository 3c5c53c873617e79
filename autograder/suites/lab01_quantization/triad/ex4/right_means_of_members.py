"""cdist, and .mean() of the members of each cluster in float32; stops when no code changes."""

import torch


def kmeans_codebook(values, bits, iterations):
    flat = values.float().flatten()
    codebook = torch.linspace(float(flat.min()), float(flat.max()), 2**bits)

    def assign():
        return torch.cdist(flat[:, None], codebook[:, None]).argmin(dim=1)

    before = None
    for _ in range(iterations):
        codes = assign()
        if before is not None and torch.equal(codes, before):
            break
        for j in codes.unique().tolist():
            codebook[j] = flat[codes == j].mean()
        before = codes
    return codebook, assign().view(values.shape).to(torch.int16)
