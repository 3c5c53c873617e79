"""All tokens equally likely."""

import torch

FAILS = ["test_certain_proposals", "test_rounds_of_certain_proposals"]


def certain(proposed, vocab):
    return torch.full((len(proposed), vocab), 1 / vocab)
