"""Magnitude pruning: the smallest weights go.

    S_ij = |W_ij|

The oldest rule (Han et al. 2015, arXiv:1506.02626) and the baseline of every later one.  It knows
nothing of the inputs: a small weight on a large input counts as unimportant.  In language models
some input channels are tens of times larger than the rest, and there the rule fails.

Where implementations differ: `scope`.  The baseline in the papers on language models compares over
a whole layer ("layer"); "row" compares within each output channel as Wanda does.  Some prune with
one threshold for the whole model; layers differ in scale, so that can empty one of them.
"""

from torch import Tensor, nn

from efflib.sparsity.masks import Pattern, Scope, keep
from efflib.sparsity.prune import prune_blocks


def magnitude_scores(w: Tensor) -> Tensor:
    """|W|, float32. [N, K]"""
    return w.detach().float().abs()


def magnitude_mask(w: Tensor, pattern: Pattern, scope: Scope = "layer") -> Tensor:
    """True where w [N, K] is kept; pattern and errors as in `masks.keep`."""
    return keep(magnitude_scores(w), pattern, scope)


def prune_magnitude(model: nn.Module, pattern: Pattern, scope: Scope = "layer") -> nn.Module:
    """A copy of the model whose blocks' linears are pruned by magnitude; it needs no data.

    Raises ValueError as `masks.keep` and `prune.block_linears`.
    """
    return prune_blocks(model, lambda w: magnitude_mask(w, pattern, scope))
