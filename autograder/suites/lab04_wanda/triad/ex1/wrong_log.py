"""Sizes are compared by their logarithm, in which neighbours are equal."""

FAILS = ["test_masks_against_sorting"]


def magnitude_mask(w, sparsity, scope):
    return keep_share(w.float().abs().log1p(), sparsity, scope)
