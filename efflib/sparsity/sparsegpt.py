"""SparseGPT: prune, and let the weights that stay make good what those that go have done.

The step from column to column stands in `efflib.repair`.  Wanda's score is its score without what
lies beside the diagonal of H, and without repair.  Masks are chosen for `block` columns at a time,
when their turn comes, among all rows of the layer: rows need not lose equally many.  n:m is chosen
for each m columns, within rows.
Source: Frantar and Alistarh 2023 (arXiv:2301.00774), algorithm 1.

Where implementations differ
- The authors and llm-compressor zero every score <= the int(s n)-th of a block, one more than
  asked; here exactly int(s n), and a last block that is shorter gets its own share.
- Their n:m counts zeros, see `masks`.
"""

from torch import Tensor, nn

from efflib.checks import expect_dims, expect_whole
from efflib.hessian import DAMPING, gram
from efflib.repair import BLOCK, prune_and_repair
from efflib.sequential import change_sequentially
from efflib.sparsity.masks import Pattern, keep


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
    pair = isinstance(pattern, tuple | list)
    if pair and (block % pattern[-1] or k % pattern[-1]):
        raise ValueError(f"block={block} and K={k} must be multiples of {pattern[-1]}")
    columns = pattern[-1] if pair else block
    return prune_and_repair(
        w, h, lambda scores: keep(scores, pattern, "layer"), columns, block, damping
    )


def prune_sparsegpt(
    model: nn.Module,
    ids: Tensor,
    pattern: Pattern,
    block: int = BLOCK,
    damping: float = DAMPING,
    sequential: bool = True,
) -> nn.Module:
    """A copy of the model whose blocks' linears are pruned and repaired by SparseGPT.

    ids [n, T]: calibration texts; each block meets what the pruned ones before it produce, unless
    sequential is False.
    """

    def repaired(w: Tensor, h: Tensor) -> Tensor:
        return sparsegpt(w, h, pattern, block, damping)

    return change_sequentially(model, ids, gram, repaired, sequential)
