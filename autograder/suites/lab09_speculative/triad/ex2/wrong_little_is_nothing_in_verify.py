"""verify picks from p where less than 1e-8 is missing."""

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
            last = pick(rest / rest.sum() if rest.sum() > 1e-8 else p[i])
            return torch.tensor([*proposed[:i].tolist(), last])
    return torch.tensor([*proposed.tolist(), pick(p[-1])])
