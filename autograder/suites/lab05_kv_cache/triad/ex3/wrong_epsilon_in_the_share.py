"""1e-8 is added to the squares of the weight, which may be smaller."""

from torch import Tensor

FAILS = ["test_shares_against_float64"]


def pooled_error(weight: Tensor, heads: int, groups: int) -> float:
    """The share of the squares of weight that is lost when its heads are pooled."""
    wide = weight.double()
    back = repeat_heads(pool_heads(wide, heads, groups), groups, heads // groups)
    return ((wide - back).square().sum() / (wide.square().sum() + 1e-8)).item()
