"""The text before is not seen."""

import torch

mask_of = tree_mask

FAILS = ["test_mask_by_hand", "test_masks_of_random_trees"]


def tree_mask(parents, past):
    mask = mask_of(parents, past)
    return torch.cat([torch.zeros(len(parents), past, dtype=torch.bool), mask[:, past:]], dim=1)
