"""What is missing to p, divided by its sum; coins one by one."""

import torch


def residual(p, q):
    missing = p - torch.minimum(p, q)
    if float(missing.sum()) == 0:
        return p
    return missing / missing.sum()


def verify(proposed, q, p, coin, pick):
    tokens = []
    for i in range(len(proposed)):
        x = int(proposed[i])
        if coin(min(1, p[i, x].item() / q[i, x].item())):
            tokens.append(x)
        else:
            return torch.tensor([*tokens, pick(residual(p[i], q[i]))], dtype=torch.int64)
    return torch.tensor([*tokens, pick(p[-1])], dtype=torch.int64)
