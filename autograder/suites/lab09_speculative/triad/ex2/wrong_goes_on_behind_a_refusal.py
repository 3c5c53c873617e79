"""A refused proposal is replaced, and the next one is judged."""

import torch

FAILS = ["test_a_round_loses_nothing", "test_never_and_always", "test_rounds_of_all_drafts"]


def residual(p, q):
    rest = (p - q).clamp(min=0)
    return rest / rest.sum() if rest.sum() > 0 else p


def verify(proposed, q, p, coin, pick):
    tokens = []
    for i, token in enumerate(proposed.tolist()):
        if coin(min(1.0, float(p[i, token] / q[i, token]))):
            tokens.append(token)
        else:
            tokens.append(pick(residual(p[i], q[i])))
    return torch.tensor([*tokens, pick(p[-1])])
