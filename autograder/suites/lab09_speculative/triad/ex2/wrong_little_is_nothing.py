"""A residual of little mass is taken for nothing, and p is returned."""

from torch import Tensor

FAILS = ["test_residual", "test_residuals"]


def residual(p: Tensor, q: Tensor) -> Tensor:
    r = (p - q).clamp(min=0)
    total = r.sum()
    return r / total if total > 0.01 else p
