"""Masks: which of the weights to keep, given a score for each.

    share s      zero the int(s n) lowest scores among the n of a row, or of the whole layer
    n of m       keep the n highest scores of every m neighbours in a row (m inputs)

Rows or layer: with a layer-wide threshold some output channels lose nearly everything; comparing
within a row takes the same share from each output.  Wanda's section 3 finds the row better for
language models, for magnitude too; the layer is what papers mean by the magnitude baseline.
Sources: Sun et al. 2024 (arXiv:2306.11695), section 3; Mishra et al. 2021 (arXiv:2104.08378) for
n:m.

Where well-known implementations differ
- n:m.  Here (n, m) are n KEPT of m, as hardware and papers read "2:4".  The code of Wanda,
  SparseGPT and llm-compressor counts ZEROS (`topk(prune_n, largest=False)`).  2:4 and 4:8 are the
  same in both; 1:4 is 75 % sparse here and 25 % sparse there.
- Threshold.  The authors' magnitude baseline and SparseGPT zero every score <= the int(s n)-th,
  one more than asked, and more at ties.  Here, as in their Wanda, exactly int(s n) are zeroed.
- int() cuts the product in floating point: int(0.29 * 100) is 28.  Kept, to agree with the authors.
- Ties.  Sorting is stable, so of equal scores the first in the row is zeroed first.
"""

from typing import Literal

import torch
from torch import Tensor

from efflib.checks import expect_whole

Pattern = float | tuple[int, int]  # the share of zeros, or (n, m): n kept of every m
Scope = Literal["row", "layer"]  # among which scores the lowest are looked for


def _lowest_zeroed(scores: Tensor, zeros: int) -> Tensor:
    """A mask that is False at the `zeros` lowest of the last dimension. [..., n] -> bool"""
    order = scores.sort(dim=-1, stable=True).indices
    mask = torch.ones_like(scores, dtype=torch.bool)
    return mask.scatter(-1, order[..., :zeros], False)


def keep_share(scores: Tensor, sparsity: float, scope: Scope) -> Tensor:
    """A mask without the int(sparsity n) lowest scores of every row, or of the layer.

    scores [N, K], sparsity 0..1.  Returns bool [N, K].  Raises ValueError for another sparsity or
    scope, or scores that hold NaN.
    """
    _check(scores)
    if not 0 <= sparsity <= 1:
        raise ValueError(f"sparsity must be from 0 to 1, got {sparsity}")
    if scope not in ("row", "layer"):
        raise ValueError(f'scope is "row" or "layer", got {scope!r}')
    compared = scores if scope == "row" else scores.reshape(1, -1)
    zeros = int(compared.shape[1] * sparsity)
    return _lowest_zeroed(compared, zeros).reshape(scores.shape)


def keep_n_of_m(scores: Tensor, n: int, m: int) -> Tensor:
    """A mask that keeps the n highest scores of every m neighbours of a row.

    scores [N, K] with K a multiple of m, 0 <= n <= m.  Returns bool [N, K], sparsity 1 - n / m.
    Raises ValueError for other n and m, or scores that hold NaN.
    """
    _check(scores)
    expect_whole(n=n, m=m)
    if not (0 <= n <= m and m >= 1):
        raise ValueError(f"need 0 <= n <= m and m >= 1, got n={n}, m={m}")
    if scores.shape[1] % m:
        raise ValueError(f"rows of scores {tuple(scores.shape)} do not divide into groups of {m}")
    groups = scores.reshape(scores.shape[0], -1, m)  # [N, K / m, m]
    return _lowest_zeroed(groups, m - n).reshape(scores.shape)


def keep(scores: Tensor, pattern: Pattern, scope: Scope = "row") -> Tensor:
    """`keep_share` for a number, `keep_n_of_m` (always within rows) for a pair. [N, K] bool"""
    if isinstance(pattern, tuple | list):
        if len(pattern) != 2:
            raise ValueError(f"pattern is a share of zeros or a pair (n, m), got {pattern}")
        return keep_n_of_m(scores, *pattern)
    if not isinstance(pattern, int | float):
        raise ValueError(f"pattern is a share of zeros or a pair (n, m), got {pattern!r}")
    return keep_share(scores, pattern, scope)


def apply_mask(w: Tensor, mask: Tensor) -> Tensor:
    """A copy of w with exact zeros where mask is False; w and mask have one shape.

    Not w * mask: that keeps inf and NaN (inf * 0) and makes -0.0 of negative weights.
    """
    if w.shape != mask.shape or mask.dtype != torch.bool:
        raise ValueError(
            f"need a bool mask of w's shape {tuple(w.shape)}, got {mask.dtype} {tuple(mask.shape)}"
        )
    return w.masked_fill(~mask, 0.0)


def sparsity(w: Tensor) -> float:
    """The share of zeros in w."""
    if w.numel() == 0:
        raise ValueError(f"no weight in shape {tuple(w.shape)}")
    return (w == 0).double().mean().item()


def _check(scores: Tensor) -> None:
    if scores.ndim != 2 or scores.numel() == 0:
        raise ValueError(f"scores must be a non-empty [N, K], got shape {tuple(scores.shape)}")
    if torch.isnan(scores).any():
        raise ValueError("scores hold NaN, which has no rank")
