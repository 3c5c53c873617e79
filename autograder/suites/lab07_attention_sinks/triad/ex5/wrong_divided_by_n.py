"""The deviation with n."""

import math

FAILS = ["test_ratio_by_hand", "test_ratios_against_float64"]


def compare(a, b):
    if a.ndim != 2 or a.shape != b.shape or len(a) < 2:
        raise ValueError("shapes")
    per_text = (a.double() - b.double()).mean(1)
    middle, error = per_text.mean(), per_text.std(correction=0) / math.sqrt(len(a))
    return tuple(float((middle + k * error).exp()) for k in (0, -2, 2))
