"""Controls for a model's measured time: what else differs between two measurements.

The time of a step is that of its products, of what lies between them, and of Python.  Here is each
of them alone, for `this_machine.pass_seconds` to be compared with.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import nn

from efflib.checks import expect_whole
from efflib.meter.this_machine import LARGE, seconds_of

T = TypeVar("T")
EMPTY = replace(  # as many layers as LARGE, and hardly any weights: Python and small operations
    LARGE, hidden_size=64, intermediate_size=64, num_attention_heads=2, num_key_value_heads=2,
    head_dim=32, vocab_size=64,
)  # fmt: skip


@torch.inference_mode()
def once(model: nn.Module) -> float:
    """Seconds of one pass over one token, with nothing that runs before it."""
    ids = torch.zeros(1, 1, dtype=torch.long)
    start = time.perf_counter()
    model(ids)
    return time.perf_counter() - start


@torch.inference_mode()
def matrices_alone(model: nn.Module, batch: int, repeats: int = 2) -> float:
    """Seconds of all linears of a model on input of ones, without anything between them.

    Raises ValueError for batch < 1.
    """
    expect_whole(1, batch=batch)
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    inputs = {m.in_features: m.weight.new_ones(batch, m.in_features) for m in linears}
    return seconds_of(lambda: [m(inputs[m.in_features]) for m in linears], repeats)


def with_threads(threads: int, work: Callable[[], T]) -> T:
    """What work() gives while torch uses so many threads; afterwards as many as before."""
    expect_whole(1, threads=threads)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return work()
    finally:
        torch.set_num_threads(before)
