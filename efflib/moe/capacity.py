"""Buffers of one size for all experts, and who stays outside when one is full.

    capacity = ceil(factor T k / E)           places of an expert; 1 is enough if all is even
    order "tokens"    assignments queue token by token, all choices of a token together (Switch)
    order "choices"   all first choices, in the order of the tokens, then all second ones (GShard)

An assignment that finds no place is dropped.  The token goes on with what its other experts give,
and through the residual connection alone if there is none: its layer does nothing for it.

Sources: Fedus et al., "Switch" (2021), section 2.2, with k = 1; Lepikhin et al., "GShard" (2020),
algorithm 1, and DeepSpeed, for the second choices.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.checks import expect_whole

Order = Literal["tokens", "choices"]
ORDERS = ("tokens", "choices")


def capacity(tokens: int, count: int, k: int, factor: float) -> int:
    """The places of each of `count` experts for `tokens` tokens with k choices.

    Raises ValueError for a negative number, no expert, or a factor that is no number.
    """
    expect_whole(tokens=tokens)
    expect_whole(1, count=count, k=k)
    if not 0 <= factor < math.inf:
        raise ValueError(f"factor={factor} must be finite and not negative")
    return math.ceil(tokens * k * factor / count)


def admitted(
    experts: Tensor, places: int, order: Order = "tokens", real: Tensor | None = None
) -> Tensor:
    """Which assignments [T, k] find a place, first come first served. [T, k] bool

    experts: [T, k], those of a token all different.
    places: of every expert.
    real: [T] bool, False for padding, which takes no place and is not admitted.

    Raises ValueError for an unknown order or a negative number of places.
    """
    expect_whole(places=places)
    if order not in ORDERS:
        raise ValueError(f"order={order!r} must be one of {', '.join(ORDERS)}")
    if not experts.numel():
        return torch.zeros(experts.shape, dtype=torch.bool)
    counted = F.one_hot(experts)  # [T, k, E]
    if real is not None:
        counted = counted * real[:, None, None]
    queue = counted if order == "tokens" else counted.transpose(0, 1)
    number = queue.flatten(0, 1).cumsum(0).view_as(queue)  # the n-th that asks for the expert
    number = number if order == "tokens" else number.transpose(0, 1)
    return ((number <= places) & (counted > 0)).any(-1)
