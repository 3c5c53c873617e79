"""A column of ones for each proposal."""

import torch

FAILS = ["test_certain_proposals", "test_rounds_of_certain_proposals"]


def certain(proposed, vocab):
    return torch.ones(len(proposed), vocab)
