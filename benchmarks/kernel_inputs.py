"""What a case of `benchmarks/kernels.py` is, and what its inputs and errors are made with."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Case(NamedTuple):
    """One computation and who can do it.

    inputs() makes a dictionary of tensors; contenders: {name: prepare}, where prepare(inputs) does
    all that is not timed and returns the call that is; error(inputs, output): relative, of an
    output; more than the limit is wrong.  flops and moved (bytes): what is needed at least.
    """

    name: str
    title: str
    inputs: Callable[[], dict]
    contenders: dict[str, Callable[[dict], Callable[[], object]]]
    error: Callable[[dict, object], float]
    limit: float
    flops: float
    moved: float


def random(seed: int, *shape: int, dtype=torch.bfloat16, device="cuda") -> Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(*shape, generator=generator, device=device, dtype=torch.float32).to(dtype)


def relative(got: Tensor, right: Tensor) -> float:
    """Root mean square of the error, relative to that of the right values."""
    difference = got.double() - right.double()
    return (difference.square().mean().sqrt() / right.double().square().mean().sqrt()).item()
