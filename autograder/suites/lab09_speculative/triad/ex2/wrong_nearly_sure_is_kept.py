"""A chance above 1 - 1e-10 is 1: kept without a coin."""

import torch

FAILS = ["test_small_chances_and_long_rounds"]


def residual(p, q):
    left = (p - q).clamp(min=0)
    total = left.sum()
    return left / total if total > 0 else p.clone()


def verify(proposed, q, p, coin, pick):
    for i, x in enumerate(proposed.tolist()):
        chance = min(1.0, float(p[i, x] / q[i, x]))
        if chance < 1 - 1e-10 and not coin(chance):
            last = pick(residual(p[i], q[i]))
            return torch.tensor([*proposed[:i].tolist(), last])
    return torch.tensor([*proposed.tolist(), pick(p[-1])])
