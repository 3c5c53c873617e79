"""A sum with 0: -0.0 that is kept becomes 0.0."""

FAILS = ["test_what_a_mask_keeps"]


def apply_mask(w, mask):
    return torch.where(mask, w, 0.0) + 0.0
