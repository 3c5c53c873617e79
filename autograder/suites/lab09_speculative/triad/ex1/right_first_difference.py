"""The first difference by argmax of a mask with a guard at its end."""

import torch


def verify_greedy(proposed, logits):
    own = logits.max(dim=-1).indices
    own = (logits == logits.max(dim=-1, keepdim=True).values).int().argmax(-1)
    differs = torch.cat([own[:-1] != proposed, torch.tensor([True])])
    n = int(differs.int().argmax())
    return torch.cat([proposed[:n], own[n : n + 1]])
