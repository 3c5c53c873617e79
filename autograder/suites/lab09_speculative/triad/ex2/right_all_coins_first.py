"""Every coin is thrown, then the first refusal is looked for."""

import torch


def residual(p, q):
    rest = torch.relu(p - q)
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 0, rest / torch.where(total > 0, total, 1), p)


def verify(proposed, q, p, coin, pick):
    g = len(proposed)
    places = torch.arange(g)
    chances = (p[places, proposed] / q[places, proposed]).clamp(max=1)
    kept = [coin(chance) for chance in chances]
    n = kept.index(False) if False in kept else g
    last = residual(p[n], q[n]) if n < g else p[g]
    return torch.cat([proposed[:n], torch.tensor([pick(last)])])
