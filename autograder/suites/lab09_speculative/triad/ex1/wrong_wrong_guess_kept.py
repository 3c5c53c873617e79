"""The refused proposal stays in the text."""

import torch

FAILS = ["x"]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1)
    n = int((own[:-1] == proposed).long().cumprod(0).sum())
    return torch.cat([proposed[: n + 1], own[n : n + 1]])[: len(own)]
