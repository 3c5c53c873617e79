"""certain writes into a buffer that is kept between calls and never cleared."""

import torch
from torch import Tensor

FAILS = ["test_certain_proposals", "test_rounds_of_certain_proposals"]


_buffers = {}


def certain(proposed: Tensor, vocab: int) -> Tensor:
    shape = (len(proposed), vocab)
    q = _buffers.setdefault(shape, torch.zeros(shape))
    q[torch.arange(len(proposed)), proposed] = 1.0
    return q
