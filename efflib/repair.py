"""Pruning with repair: the weights that stay make good what those that go have done.

    for the columns j from left to right:
        S_ij = W_ij^2 / U_jj^2                    what zeroing W_ij costs after the repair
        e_i  = W_ij / U_jj    where W_ij is pruned, else 0
        W_i,j: = W_i,j: - e_i U_j,j:              pruned entries become 0, later columns change

with U of `efflib.hessian`.  Which weights go, given S, is the caller's choice.  This is the inner
part of SparseGPT (Frantar and Alistarh 2023, arXiv:2301.00774, algorithm 1).

Where implementations differ
- The authors compute in float32, here it is float64: what is nearly a tie may fall the other way.
- Their code updates within a block at once and the columns behind it when the block is done: the
  same numbers, in fewer large products.  Here too.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from efflib.checks import expect_dims, expect_whole
from efflib.hessian import DAMPING, inverse_factor

BLOCK = 128  # columns between two updates of all that is behind them

Choice = Callable[[Tensor], Tensor]  # scores [N, columns] -> True where a weight is kept


def prune_and_repair(
    w: Tensor,
    h: Tensor,
    choose: Choice,
    columns: int = BLOCK,
    block: int = BLOCK,
    damping: float = DAMPING,
) -> Tensor:
    """w [N, K] pruned and repaired for inputs with H = X^T X [K, K]; in the dtype of w.

    choose gets the scores of so many columns at a time, when their turn comes; a last block may be
    shorter.  Weights of channels that were always 0 become 0 before anything is chosen.
    Raises ValueError as `hessian.inverse_factor`, if h does not fit w, or unless block is a
    multiple of columns.
    """
    expect_dims("[N, K]", w=w)
    expect_whole(1, block=block, columns=columns)
    k = w.shape[1]
    if h.shape != (k, k):
        raise ValueError(f"need h [K, K] of w {tuple(w.shape)}, got {tuple(h.shape)}")
    if block % columns:
        raise ValueError(f"block={block} must be a multiple of columns={columns}")
    u = inverse_factor(h, damping)
    w_new = w.detach().double().masked_fill(h.diagonal() == 0, 0.0)  # inputs that are always 0
    for start in range(0, k, block):
        stop = min(start + block, k)
        part, factor = w_new[:, start:stop], u[start:stop, start:stop]
        repaired, errors = _prune_columns(part, factor, choose, columns)
        w_new[:, start:stop] = repaired
        w_new[:, stop:] -= errors @ u[start:stop, stop:]
    return w_new.to(w.dtype)


def _prune_columns(w: Tensor, u: Tensor, choose: Choice, step: int) -> tuple[Tensor, Tensor]:
    """(w [N, B] pruned, errors e [N, B]) of one block with its part u [B, B] of the factor."""
    d = u.diagonal()
    columns = w.T.clone(memory_format=torch.contiguous_format)  # [B, N]: each column in one piece
    errors = torch.zeros_like(columns)
    for first in range(0, len(columns), step):
        last = min(first + step, len(columns))
        scores = (columns[first:last] / d[first:last, None]).square().T
        kept = choose(scores).T  # [step, N]
        for j in range(first, last):
            errors[j] = columns[j].masked_fill(kept[j - first], 0.0) / d[j]
            columns[j:] -= u[j, j:, None] * errors[j]
            columns[j].masked_fill_(~kept[j - first], 0.0)  # exactly
    return columns.T, errors.T
