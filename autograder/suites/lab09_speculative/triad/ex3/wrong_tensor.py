"""A tensor in place of a number."""

import torch

FAILS = ["x"]


def acceptance_rate(p, q):
    return torch.minimum(p, q).sum()
