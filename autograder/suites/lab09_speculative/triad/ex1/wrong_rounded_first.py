"""The logits are rounded to float32 before they are compared: close ones become equal."""

from torch import Tensor

FAILS = ["test_greedy_ends", "test_long_and_strange_rounds"]


def verify_greedy(proposed: Tensor, logits: Tensor) -> Tensor:
    own = logits.float().argmax(-1)
    n = int((own[:-1] == proposed).long().cumprod(0).sum())
    return own[: n + 1]
