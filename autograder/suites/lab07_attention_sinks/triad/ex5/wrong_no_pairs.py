"""The errors of both means are added as if texts differed."""

import torch

FAILS = ["test_ratio_by_hand", "test_ratios_against_float64", "test_small_cases_of_compare"]


def compare(a, b):
    if a.ndim != 2 or a.shape != b.shape or len(a) < 2:
        raise ValueError("shapes")
    a, b = a.double().mean(1), b.double().mean(1)
    middle = a.mean() - b.mean()
    error = torch.sqrt((a.var() + b.var()) / len(a))
    return tuple(float((middle + k * error).exp()) for k in (0, -2, 2))
