"""Kept where p >= q, refused else: no coin."""

import torch

FAILS = ["test_a_round_loses_nothing", "test_rounds_of_all_drafts", "test_rounds_of_the_real_pair"]


def residual(p, q):
    rest = (p - q).clamp(min=0)
    return rest / rest.sum() if rest.sum() > 0 else p


def verify(proposed, q, p, coin, pick):
    kept, last = len(proposed), p[-1]
    for i, token in enumerate(proposed.tolist()):
        if p[i, token] < q[i, token]:
            kept, last = i, residual(p[i], q[i])
            break
    return torch.cat([proposed[:kept], torch.tensor([pick(last)])])
