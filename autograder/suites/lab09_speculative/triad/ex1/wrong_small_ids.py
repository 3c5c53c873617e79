"""Ids are kept in sixteen bits."""

import torch

FAILS = ["test_sizes_and_magnitudes"]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1).to(torch.int16)
    agree = (own[:-1] == proposed.to(torch.int16)).long().cumprod(0)
    return own[: int(agree.sum()) + 1].to(torch.int64)
