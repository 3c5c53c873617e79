"""The mask does not use the norms."""

FAILS = ["test_masks_of_rows", "test_rows_compared_alone"]


def wanda_mask(w, norms, sparsity):
    return keep_share(w.abs(), sparsity, "row")
