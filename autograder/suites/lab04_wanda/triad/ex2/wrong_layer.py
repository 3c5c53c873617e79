"""Compared over the whole layer."""

FAILS = ["test_masks_of_rows", "test_rows_compared_alone"]


def wanda_mask(w, norms, sparsity):
    return keep_share(scores(w, norms), sparsity, "layer")
