"""Nodes numbered through, as in a chain."""

FAILS = ["test_mask_by_hand", "test_masks_of_random_trees"]


def depths(parents):
    return list(range(len(parents)))
