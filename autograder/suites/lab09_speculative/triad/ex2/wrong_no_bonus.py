"""All accepted: nothing is added."""

import torch

FAILS = ["test_never_and_always", "test_rounds_of_all_drafts"]


def residual(p, q):
    rest = (p - q).clamp(min=0)
    return rest / rest.sum() if rest.sum() > 0 else p


def verify(proposed, q, p, coin, pick):
    for i, token in enumerate(proposed.tolist()):
        if not coin(min(1.0, float(p[i, token] / q[i, token]))):
            return torch.cat([proposed[:i], torch.tensor([pick(residual(p[i], q[i]))])])
    return proposed if len(proposed) else torch.tensor([pick(p[-1])])
