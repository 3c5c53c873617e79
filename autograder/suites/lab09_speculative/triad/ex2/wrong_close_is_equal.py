"""Rows that are closer than the root of the dtype's eps count as equal."""

import torch

FAILS = ["test_residuals"]


def residual(p, q):
    rest = (p - q).clamp(min=0)
    total = rest.sum()
    return rest / total if total > torch.finfo(p.dtype).eps ** 0.5 else p.clone()
