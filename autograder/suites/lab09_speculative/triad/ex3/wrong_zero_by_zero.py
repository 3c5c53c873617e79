"""q times p / q: 0 / 0 where a token has probability 0 in both."""

from torch import Tensor

FAILS = ["test_rate"]


def acceptance_rate(p: Tensor, q: Tensor) -> float:
    return float((q * (p / q).clamp(max=1)).sum())
