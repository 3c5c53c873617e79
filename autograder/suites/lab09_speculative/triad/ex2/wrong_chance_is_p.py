"""Every proposal is judged as if it had been certain."""

import torch

FAILS = ["test_a_round_loses_nothing", "test_never_and_always", "test_rounds_of_all_drafts"]


def residual(p, q):
    rest = (p - q).clamp(min=0)
    return rest / rest.sum() if rest.sum() > 0 else p


def verify(proposed, q, p, coin, pick):
    kept, last = len(proposed), p[-1]
    for i, token in enumerate(proposed.tolist()):
        if not coin(float(p[i, token])):
            kept, last = i, residual(p[i], q[i])
            break
    return torch.cat([proposed[:kept], torch.tensor([pick(last)])])
