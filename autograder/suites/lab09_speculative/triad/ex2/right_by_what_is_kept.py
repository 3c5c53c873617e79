"""The residual's sum as 1 less what is kept."""

import torch


def residual(p, q):
    kept = torch.minimum(p, q)
    if torch.equal(kept, p):
        return p.clone()
    return (p - kept) / (p - kept).sum(dtype=torch.float64).to(p.dtype)


def verify(proposed, q, p, coin, pick):
    out, chances = [], torch.ones(len(proposed), dtype=torch.float64)
    if len(proposed):
        rows = torch.arange(len(proposed))
        chances = (p[rows, proposed].double() / q[rows, proposed].double()).clamp(max=1)
    for i, chance in enumerate(chances):
        if chance < 1 and not coin(chance):
            return torch.tensor([*out, pick(residual(p[i], q[i]))])
        out.append(int(proposed[i]))
    return torch.tensor([*out, pick(p[len(proposed)])])
