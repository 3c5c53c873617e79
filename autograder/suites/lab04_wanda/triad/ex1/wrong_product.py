"""w * mask: NaN and inf stay NaN."""

FAILS = ["test_what_a_mask_keeps", "test_zeros_under_the_mask"]


def apply_mask(w, mask):
    return w * mask
