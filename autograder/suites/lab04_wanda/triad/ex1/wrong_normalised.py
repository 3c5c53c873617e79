"""Sizes are divided by the largest, which makes neighbours equal."""

FAILS = ["test_masks_against_sorting"]


def magnitude_mask(w, sparsity, scope):
    sizes = w.float().abs()
    return keep_share(sizes / sizes.amax(), sparsity, scope)
