"""Bytes in float32, which has steps of a KiB in a real model."""

import torch
from torch import Tensor  # noqa: F401

FAILS = ["test_one_more_does_not_fit"]


def max_batch(
    config: dict,
    parameters: int,
    memory: int,
    context: int,
    weight_bits: float = 16,
    bits: int = 16,
    group_size: int | None = None,
) -> int:
    """How many sequences of `context` tokens fit into `memory` bytes beside the weights."""
    left = (torch.tensor(float(memory)) - parameters * weight_bits / 8).item()
    return max(0, int(left // cache_bytes(config, [context], bits, group_size)))
