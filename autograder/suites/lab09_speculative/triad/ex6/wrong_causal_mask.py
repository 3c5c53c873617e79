"""Every node sees all that stand before it."""

import torch

FAILS = ["x"]


def tree_mask(parents, past):
    n = len(parents)
    return torch.ones(n, past + n, dtype=torch.bool).tril(past)
