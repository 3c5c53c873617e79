"""Shapes that can be broadcast are accepted."""

import math

import torch

FAILS = ["test_what_cannot_be_compared", "test_small_cases_of_compare"]


def compare(a, b):
    if a.ndim != 2 or a.ndim != b.ndim or len(a) < 2:
        raise ValueError("shapes")
    a, b = torch.broadcast_tensors(a, b)
    per_text = (a.double() - b.double()).mean(1)
    middle, error = per_text.mean(), per_text.std() / math.sqrt(len(a))
    return tuple(float((middle + k * error).exp()) for k in (0, -2, 2))
