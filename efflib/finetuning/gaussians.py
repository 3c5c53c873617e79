"""One normal distribution fitted to a mixture of two: what a divergence makes of two modes.

    p(x) = share N(x; -apart / 2, 1) + (1 - share) N(x; apart / 2, 1)

on a grid, as a teacher over GRID tokens.  The student is N(x; mean, deviation) on the same grid and
follows the gradient of a divergence of logits.  Forward KL matches mean and deviation of the whole
(mean seeking).  Reverse KL settles on one mode (mode seeking) where they are far apart and it
starts near one; 4 deviations apart, or from a start in the middle, it covers both as well.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

GRID = torch.linspace(-24, 24, 961)  # wide: a grid that cuts a tail off changes what fits best


class Fit(NamedTuple):
    """Where the student ended."""

    mean: float
    deviation: float
    value: float  # of the divergence, nats


def normal(mean: Tensor, deviation: Tensor) -> Tensor:
    """Logits of N(mean, deviation) on the grid. [GRID]"""
    return -0.5 * ((GRID - mean) / deviation).square()


def mixture(apart: float, share: float) -> Tensor:
    """Logits of the mixture on the grid. [GRID]"""
    each = torch.stack(
        [normal(torch.tensor(m), torch.tensor(1.0)) for m in (-apart / 2, apart / 2)]
    )
    return torch.logsumexp(each + torch.tensor([[share], [1 - share]]).log(), dim=0)


def fit(
    divergence: Callable[[Tensor, Tensor], Tensor],
    teacher: Tensor,
    mean: float = 0.5,
    deviation: float = 2.0,
    steps: int = 400,
) -> Fit:
    """The normal distribution that Adam finds from a start; divergence(teacher, student) -> []."""
    at = torch.tensor(float(mean), requires_grad=True)
    log_width = torch.tensor(float(deviation)).log().requires_grad_()
    optimizer = torch.optim.Adam([at, log_width], lr=0.05)
    for _ in range(steps):
        loss = divergence(teacher, normal(at, log_width.exp()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Fit(at.item(), log_width.exp().item(), loss.item())
