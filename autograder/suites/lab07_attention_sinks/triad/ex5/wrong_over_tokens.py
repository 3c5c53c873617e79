"""The error over all tokens."""

import math

FAILS = ["test_ratio_by_hand", "test_ratios_against_float64"]


def compare(a, b):
    if a.ndim != 2 or a.shape != b.shape or len(a) < 2:
        raise ValueError("shapes")
    per_text = (a.double() - b.double()).flatten()
    middle, error = per_text.mean(), per_text.std() / math.sqrt(a.numel())
    return tuple(float((middle + k * error).exp()) for k in (0, -2, 2))
