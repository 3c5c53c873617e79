"""Keeps half as often and draws from what then is missing: exact, and slower."""

import torch

FAILS = ["test_rounds_of_all_drafts"]


def verify(proposed, q, p, coin, pick):
    kept, last = len(proposed), p[-1]
    for i, token in enumerate(proposed.tolist()):
        if bool((p[i] == q[i]).all()):
            continue
        if not coin(0.5 * min(1.0, float(p[i, token] / q[i, token]))):
            rest = p[i] - 0.5 * torch.minimum(p[i], q[i])
            kept, last = i, rest / rest.sum()
            break
    return torch.cat([proposed[:kept], torch.tensor([pick(last)])])
