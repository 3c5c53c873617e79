"""Nearly 1, and something for the others."""

import torch

FAILS = ["test_certain_proposals", "test_rounds_of_certain_proposals"]


def certain(proposed, vocab):
    q = torch.nn.functional.one_hot(proposed, vocab).float()
    return 0.9 * q + 0.1 / vocab
