"""A window of 64 tokens is seen."""

mask_of = tree_mask

FAILS = ["test_masks_of_random_trees"]


def tree_mask(parents, past):
    mask = mask_of(parents, past)
    mask[:, : max(0, past - 64)] = False
    return mask
