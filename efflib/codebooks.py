"""Codebooks that are given: a format's levels, where no lab derives them."""

from functools import cache

import torch
from torch import Tensor


@cache
def dynamic_codebook() -> Tensor:
    """The 256 levels of the dynamic 8-bit code, in rising order. [256] float32

    For each exponent e = 0..6: the 2^e middles of equal parts of [0.1, 1], times 10^(e - 6), with
    both signs; and 0 and 1.  Source: Dettmers et al. 2022 (arXiv:2110.02861), section 2.
    """
    levels = [0.0, 1.0]
    for e in range(7):
        ends = torch.linspace(0.1, 1, 2**e + 1)
        middles = 10.0 ** (e - 6) * ((ends[:-1] + ends[1:]) / 2)
        levels += middles.tolist() + (-middles).tolist()
    return torch.tensor(sorted(levels))
