"""The residual of the row behind."""

import torch

FAILS = ["test_never_and_always", "test_rounds_of_all_drafts"]


def residual(p, q):
    rest = (p - q).clamp(min=0)
    return rest / rest.sum() if rest.sum() > 0 else p


def verify(proposed, q, p, coin, pick):
    kept, last = len(proposed), p[-1]
    for i, token in enumerate(proposed.tolist()):
        if not coin(min(1.0, float(p[i, token] / q[i, token]))):
            kept, last = i, residual(p[i + 1], q[i])
            break
    return torch.cat([proposed[:kept], torch.tensor([pick(last)])])
