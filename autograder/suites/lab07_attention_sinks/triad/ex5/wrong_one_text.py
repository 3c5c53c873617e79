"""One text is accepted, with NaN."""

import math

FAILS = ["test_what_cannot_be_compared", "test_small_cases_of_compare"]


def compare(a, b):
    if a.ndim != 2 or a.shape != b.shape:
        raise ValueError("shapes")
    per_text = (a.double() - b.double()).mean(1)
    middle, error = per_text.mean(), per_text.std() / math.sqrt(len(a))
    return tuple(float((middle + k * error).exp()) for k in (0, -2, 2))
