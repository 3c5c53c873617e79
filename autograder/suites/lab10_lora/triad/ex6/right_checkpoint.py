"""A checkpoint of torch, which computes the product again; rows one by one."""

from torch.utils.checkpoint import checkpoint


def frozen_product(x, decode):
    if not x.requires_grad:
        return F.linear(x, decode().to(x.dtype))
    return checkpoint(lambda inputs: F.linear(inputs, decode().to(x.dtype)), x, use_reentrant=False)


def batched_update(x, y, adapters, index):
    if not all(-1 <= j < len(adapters) for j in index.tolist()):
        raise ValueError("no such adapter")
    rows = []
    for i, j in enumerate(index.tolist()):
        row = y[i]
        if j >= 0:
            a, b, scale = adapters[j]
            row = row + scale * F.linear(F.linear(x[i], a), b)
        rows.append(row)
    return torch.stack(rows)
