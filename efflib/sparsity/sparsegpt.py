"""SparseGPT: prune, and let the weights that stay make good what those that go have done.

    for the columns j from left to right:
        S_ij = W_ij^2 / U_jj^2                    what zeroing W_ij costs after the repair
        e_i  = W_ij / U_jj    where W_ij is pruned, else 0
        W_i,j: = W_i,j: - e_i U_j,j:              pruned entries become 0, later columns change

with U of `efflib.hessian`.  Wanda's score is the same without what lies beside the diagonal of H,
and without repair.  Masks are chosen for `block` columns at a time, when their turn comes, among
all rows of the layer: rows need not lose equally many.  n:m is chosen for each m columns, within
rows.  Source: Frantar and Alistarh 2023 (arXiv:2301.00774), algorithm 1.

Where implementations differ
- The authors and llm-compressor zero every score <= the int(s n)-th of a block, one more than
  asked; here exactly int(s n), and a last block that is shorter gets its own share.
- Their n:m counts zeros, see `masks`.
- They compute in float32, here it is float64: what is nearly a tie may fall the other way.
- Their code updates within a block at once and the columns behind it when the block is done: the
  same numbers, in fewer large products.  Here too.
"""

import torch
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_whole
from efflib.hessian import DAMPING, gram, inverse_factor
from efflib.sequential import change_sequentially
from efflib.sparsity.masks import Pattern, keep

BLOCK = 128  # columns that share a choice


def sparsegpt(
    w: Tensor, h: Tensor, pattern: Pattern, block: int = BLOCK, damping: float = DAMPING
) -> Tensor:
    """w [N, K] pruned and repaired for inputs with H = X^T X [K, K]; in the dtype of w.

    Weights of channels that were always 0 become 0 before anything is chosen, and go first.
    pattern as in `masks.keep`; for n:m, block must be a multiple of m.
    Raises ValueError as `masks.keep` and `hessian.inverse_factor`, or if h does not fit w.
    """
    expect_dims("[N, K]", w=w)
    expect_whole(1, block=block)
    n, k = w.shape
    if h.shape != (k, k):
        raise ValueError(f"need h [K, K] of w {tuple(w.shape)}, got {tuple(h.shape)}")
    if isinstance(pattern, tuple | list) and (block % pattern[-1] or k % pattern[-1]):
        raise ValueError(f"block={block} and K={k} must be multiples of {pattern[-1]}")
    u = inverse_factor(h, damping)
    w_new = w.detach().double().masked_fill(h.diagonal() == 0, 0.0)  # inputs that are always 0
    for start in range(0, k, block):
        stop = min(start + block, k)
        part, factor = w_new[:, start:stop], u[start:stop, start:stop]
        repaired, errors = _prune_columns(part, factor, pattern)
        w_new[:, start:stop] = repaired
        w_new[:, stop:] -= errors @ u[start:stop, stop:]
    return w_new.to(w.dtype)


def _prune_columns(w: Tensor, u: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor]:
    """(w [N, B] pruned, errors e [N, B]) of one block with its part u [B, B] of the factor."""
    width, d = w.shape[1], u.diagonal()
    step = pattern[-1] if isinstance(pattern, tuple | list) else width
    columns = w.T.clone(memory_format=torch.contiguous_format)  # [B, N]: each column in one piece
    errors = torch.zeros_like(columns)
    for first in range(0, width, step):
        last = first + step
        scores = (columns[first:last] / d[first:last, None]).square().T
        kept = keep(scores, pattern, "layer").T  # [step, N]
        for j in range(first, last):
            errors[j] = columns[j].masked_fill(kept[j - first], 0.0) / d[j]
            columns[j:] -= u[j, j:, None] * errors[j]
            columns[j].masked_fill_(~kept[j - first], 0.0)  # exactly
    return columns.T, errors.T


def prune_sparsegpt(
    model: nn.Module, ids: Tensor, pattern: Pattern, block: int = BLOCK, damping: float = DAMPING
) -> nn.Module:
    """A copy of the model whose blocks' linears are pruned and repaired by SparseGPT.

    ids [n, T]: calibration texts; each block meets what the pruned ones before it produce.
    """

    def repaired(w: Tensor, h: Tensor) -> Tensor:
        return sparsegpt(w, h, pattern, block, damping)

    return change_sequentially(model, ids, gram, repaired)
