"""The share of a bias is looked for in its second dimension."""

from torch import Tensor

FAILS = ["test_share_that_is_lost"]


def pooled_error(weight: Tensor, heads: int, groups: int) -> float:
    """The share of the squares of weight that is lost when its heads are pooled."""
    wide = weight.double()
    back = repeat_heads(pool_heads(wide, heads, groups), groups, heads // groups)
    return ((wide - back).square().sum((0, 1)).sum() / wide.square().sum((0, 1)).sum()).item()
