"""A column of ones for each proposal."""

import torch

FAILS = ["x"]


def certain(proposed, vocab):
    return torch.ones(len(proposed), vocab)
