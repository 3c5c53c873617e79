"""verify divides what is missing by its sum and a constant."""

import torch

FAILS = ["test_small_chances_and_long_rounds"]


def residual(p, q):
    left = (p - q).clamp(min=0)
    total = left.sum()
    return left / total if total > 0 else p.clone()


def verify(proposed, q, p, coin, pick):
    for i, x in enumerate(proposed.tolist()):
        if not coin(min(1.0, float(p[i, x] / q[i, x]))):
            rest = (p[i] - q[i]).clamp(min=0)
            last = pick(rest / (rest.sum() + 1e-12))
            return torch.tensor([*proposed[:i].tolist(), last])
    return torch.tensor([*proposed.tolist(), pick(p[-1])])
