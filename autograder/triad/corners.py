"""Mutants of a whole function that differ from it in a corner alone: where a number is large, tiny
or not finite, where a tensor is strided, has a size of 1 or many dimensions, or half the digits.

A leaf takes a tensor or a number and returns what takes its place, the same object where there is
nothing to change (see spoilt.py). A mutant counts as one only if it changed something.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from autograder.triad.spoilt import call, changed, result_changed

LARGE, TINY = 1e4, 1e-6

# ---- leaves: numbers that get lost --------------------------------------------------------------


def of_floats(change: Callable[[Tensor], Tensor]) -> Callable:
    """A leaf: what `change` makes of float tensors and of floats, if it makes anything else."""

    def leaf(value):
        if isinstance(value, float):
            [made] = change(torch.tensor([value], dtype=torch.float64)).tolist()
            return value if made == value or math.isnan(made) else made
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        made = change(value)
        return value if torch.equal(made.nan_to_num(0.5), value.nan_to_num(0.5)) else made

    return leaf


def through(dtype: torch.dtype) -> Callable:
    """A leaf: digits that this dtype does not hold are lost. Floats keep theirs."""
    leaf = of_floats(lambda x: x.to(dtype).to(x.dtype))
    return lambda value: leaf(value) if isinstance(value, Tensor) else value


def clipped(x: Tensor) -> Tensor:
    return x.clamp(-LARGE, LARGE)


def tiny_lost(x: Tensor) -> Tensor:
    return torch.where(x.abs() < TINY, torch.zeros_like(x), x)


def finite(value):
    """NaN is 0, infinity the largest number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else torch.tensor(value).nan_to_num().item()
    whole = not isinstance(value, Tensor) or bool(value.isfinite().all())
    return value if whole else value.nan_to_num()


def in_bits(bits: int) -> Callable:
    """A leaf: integers in two's complement of so many bits."""
    half = 1 << (bits - 1)

    def leaf(value):
        if isinstance(value, Tensor) and value.dtype in (torch.int32, torch.int64):
            made = ((value.long() + half) % (2 * half) - half).to(value.dtype)  # 2^32 is no int32
            return value if torch.equal(made, value) else made
        return (value + half) % (2 * half) - half if type(value) is int else value

    return unless_equal(leaf)


def counted_in_float(value):
    """Integers above 2^24 lose their last digits."""
    if isinstance(value, Tensor) and value.dtype is torch.int64:
        return value.float().long()
    if type(value) is not int or abs(value) >= 2**63:  # no tensor holds more
        return value
    return int(torch.tensor(value, dtype=torch.float32))


def unless_equal(leaf: Callable) -> Callable:
    """The leaf, which returns the same object where the number stays the same."""

    def careful(value):
        made = leaf(value)
        same = torch.equal(made, value) if isinstance(value, Tensor) else made == value
        return value if same else made

    return careful


# ---- leaves: forms ------------------------------------------------------------------------------


def squeezed(value):
    return value.squeeze() if isinstance(value, Tensor) and 1 in value.shape else value


def another_type(value):
    """Integers as floats, bools as integers."""
    if isinstance(value, Tensor):
        if value.dtype is torch.bool:
            return value.long()
        return value if value.is_floating_point() | value.is_complex() else value.float()
    return {int: float, bool: int}.get(type(value), lambda same: same)(value)


def detached(value):
    return value.detach() if isinstance(value, Tensor) and value.requires_grad else value


def as_memory_lies(value):
    """The numbers in the order of memory, whatever the strides say."""
    if not isinstance(value, Tensor) or value.is_contiguous() or 0 in value.stride():
        return value
    flat = torch.as_strided(value, (value.numel(),), (1,))
    return value if torch.equal(flat, value.reshape(-1)) else flat.reshape(value.shape)


def first_for_all(dim: int) -> Callable:
    """A leaf: of three dimensions and more the first entry along this one stands for all."""

    def leaf(value):
        if not isinstance(value, Tensor) or value.dim() < dim + 3 or value.shape[dim] < 2:
            return value
        return value.narrow(dim, 0, 1).expand_as(value)

    return leaf


NUMBERS = {
    "in bfloat16": through(torch.bfloat16),
    "in float16": through(torch.float16),
    "clipped at 1e4": of_floats(clipped),
    "tiny lost": of_floats(tiny_lost),
    "finite": finite,
    "in 32 bits": in_bits(32),
    "counted in float": unless_equal(counted_in_float),
}
OF_ARGUMENTS = NUMBERS | {
    "in 8 bits": in_bits(8),
    "in 16 bits": in_bits(16),
    "as memory lies": as_memory_lies,
    "first of a batch": first_for_all(0),
    "first of four dimensions": first_for_all(1),
}
OF_RESULTS = NUMBERS | {
    "squeezed": squeezed,
    "of another type": another_type,
    "detached": detached,
}


def act_on(leaf: Callable, value) -> bool:
    """Whether a leaf changes anything in a value."""
    found = []
    changed(value, leaf, lambda: found.append(True))
    return bool(found)


def argument_changed(leaf: Callable) -> Callable:
    def kind(function: Callable, acted: Callable, parameter: str) -> Callable:
        def act(bound):
            value = bound.arguments[parameter]
            if act_on(leaf, value):  # else it stays the caller's own list
                bound.arguments[parameter] = changed(value, leaf, acted)
            return call(function, bound)

        return act

    return kind


OF_CALLS = {f"result {name}": result_changed(leaf) for name, leaf in OF_RESULTS.items()}
OF_PARAMETERS = {name: argument_changed(leaf) for name, leaf in OF_ARGUMENTS.items()}


def acting(arguments: dict, result) -> Iterator[tuple[str, str]]:
    """(parameter, kind) of the mutants above that would change something in this call.

    parameter: "" where it is the result that changes
    """
    for name, leaf in OF_RESULTS.items():
        if act_on(leaf, result):
            yield "", f"result {name}"
    for parameter, value in arguments.items():
        yield from ((parameter, name) for name, leaf in OF_ARGUMENTS.items() if act_on(leaf, value))
