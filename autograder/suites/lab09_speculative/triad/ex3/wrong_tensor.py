"""A tensor in place of a number."""

import torch

FAILS = ["test_rate", "test_rates"]


def acceptance_rate(p, q):
    return torch.minimum(p, q).sum()
