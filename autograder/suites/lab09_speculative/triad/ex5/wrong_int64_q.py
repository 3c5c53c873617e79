"""Whole numbers."""

import torch

FAILS = ["test_certain_proposals", "test_rounds_of_certain_proposals"]


def certain(proposed, vocab):
    return torch.nn.functional.one_hot(proposed, vocab)
