"""The mean over values of their shares."""

from torch import Tensor

FAILS = ["test_share_that_is_lost"]


def pooled_error(weight: Tensor, heads: int, groups: int) -> float:
    """The share of the squares of weight that is lost when its heads are pooled."""
    wide = weight.double()
    back = repeat_heads(pool_heads(wide, heads, groups), groups, heads // groups)  # noqa: F821
    return ((wide - back).square() / wide.square().clamp(min=1e-9)).mean().item()
