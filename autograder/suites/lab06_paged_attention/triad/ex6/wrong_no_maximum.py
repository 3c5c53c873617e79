"""Exponentials of the scores as they are."""

import torch

FAILS = ["test_online_softmax", "test_absorb_in_any_cuts"]


def absorb(state, scores, values):
    m, t, a = state
    larger = torch.zeros_like(t)
    p, keep = torch.exp(scores - larger[:, None]), torch.ones_like(t)
    return larger, t * keep + p.sum(-1), a * keep[:, None] + (p[:, :, None] * values).sum(1)
