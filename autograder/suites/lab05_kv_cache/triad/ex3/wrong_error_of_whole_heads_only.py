"""Rows behind the last whole head are left out, and nobody is told."""

from torch import Tensor

FAILS = ["test_share_that_is_lost"]


def pooled_error(weight: Tensor, heads: int, groups: int) -> float:
    """The share of the squares of weight that is lost when its heads are pooled."""
    wide = weight.double()[: len(weight) // max(heads, 1) * heads]
    back = repeat_heads(pool_heads(wide, heads, groups), groups, heads // groups)
    return ((wide - back).square().sum() / wide.square().sum()).item()
