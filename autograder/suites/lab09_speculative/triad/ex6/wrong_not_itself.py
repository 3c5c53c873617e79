"""A node does not see itself."""

import torch

mask_of = tree_mask

FAILS = ["x"]


def tree_mask(parents, past):
    n = len(parents)
    itself = torch.cat([torch.zeros(n, past), torch.eye(n)], dim=1).bool()
    return mask_of(parents, past) & ~itself
