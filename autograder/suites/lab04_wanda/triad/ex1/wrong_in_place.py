"""apply_mask changes w."""

FAILS = ["test_bfloat16_and_views", "test_what_a_mask_keeps", "test_zeros_under_the_mask"]


def apply_mask(w, mask):
    return w.masked_fill_(~mask, 0.0)
