"""Wanda: prune by weight times the size of the input it meets.

    S_ij = |W_ij| ||X_j||_2        ||X_j||_2 = sqrt(sum over tokens of X_tj^2)

Compared within every output row, no weight is updated.  Why this score: zeroing W_ij alone changes
output i by W_ij X_j, whose norm over the tokens is S_ij; it is the optimal-brain-surgeon saliency
W_ij^2 / (H^-1)_jj with all of H = X^T X but its diagonal ignored.
Source: Sun et al. 2024 (arXiv:2306.11695), equation 1 and algorithm 1.

Where implementations differ
- The authors' code and llm-compressor keep sum_t X_tj^2 / (number of sequences) and take its root:
  a common factor, so the same masks.
- torchao's `WandaSparsifier` (0.18) is another method under the name, and no oracle: it
  multiplies by ||X_j||^2 and compares over the whole layer.  About one mask bit in ten differs.
- The authors have a variant that searches the sparsity of each row; not here.
- The authors' n:m counts zeros, see `masks`.
"""

from torch import Tensor, nn

from efflib.checks import expect_dims
from efflib.sparsity.masks import Pattern, keep
from efflib.sparsity.prune import prune_sequentially


def input_norms(x: Tensor) -> Tensor:
    """||X_j||_2 of every channel over all tokens of x [..., K]. [K] float32

    The squares are summed in float64: over a million tokens float32 would lose small ones.
    """
    expect_dims("[..., K]", x=x)
    return x.detach().double().reshape(-1, x.shape[-1]).square().sum(0).sqrt().float()


def wanda_scores(w: Tensor, norms: Tensor) -> Tensor:
    """|W_ij| ||X_j||_2 of w [N, K] and norms [K], float32. [N, K]

    Raises ValueError if norms has another shape, or a norm is negative, infinite or NaN.
    """
    if norms.shape != w.shape[1:]:
        raise ValueError(f"need norms [K] of w {tuple(w.shape)}, got {tuple(norms.shape)}")
    if not ((norms >= 0) & norms.isfinite()).all():
        raise ValueError(f"norms must be finite and >= 0, got {norms.tolist()}")
    return w.detach().float().abs() * norms.float()


def wanda_mask(w: Tensor, norms: Tensor, pattern: Pattern) -> Tensor:
    """True where w [N, K] is kept, compared within rows; pattern as in `masks.keep`."""
    return keep(wanda_scores(w, norms), pattern, "row")


def prune_wanda(model: nn.Module, ids: Tensor, pattern: Pattern) -> nn.Module:
    """A copy of the model whose blocks' linears are pruned by Wanda.

    ids [n, T]: calibration texts; 128 of 2048 tokens in the paper, a few do.  Each block is
    scored on what the pruned blocks before it produce.
    """
    return prune_sequentially(model, ids, lambda w, norms: wanda_mask(w, norms, pattern))
