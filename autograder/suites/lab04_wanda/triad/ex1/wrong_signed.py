"""Magnitudes without abs: negative weights go first."""

FAILS = [
    "test_bfloat16_and_views",
    "test_masks_against_sorting",
    "test_masks_by_hand",
    "test_zeros_under_the_mask",
]


def magnitude_mask(w, sparsity, scope):
    return keep_share(w, sparsity, scope)
