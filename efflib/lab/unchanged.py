"""A function of the course leaves its arguments as they were; this notices if one does not.

Every call of a student's function is compared before and after, in a notebook and in grading alike:
tensors byte by byte; lists, tuples and dicts part by part.  Modules and other objects are passed
over: tests of functions that take them look at their parameters themselves.
"""

import inspect
from collections.abc import Callable

import torch

PLAIN = (type(None), bool, int, float, str, bytes, torch.dtype)
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


class ChangedArgument(Exception):
    """The student's function changed an argument in place."""


def call_unchanged(function: Callable, name: str, args: tuple, kwargs: dict):
    """function(*args, **kwargs). Raises ChangedArgument if that changed one of them."""
    before = snapshot(args), snapshot(kwargs)
    value = function(*args, **kwargs)
    changed = [parameter(function, i) for i, arg in enumerate(args) if not same(before[0][i], arg)]
    changed += [key for key, arg in kwargs.items() if not same(before[1][key], arg)]
    if changed:
        raise ChangedArgument(f"{name} changed its argument {changed[0]} in place")
    return value


def snapshot(value: object):
    """A copy of what `value` holds now: of its tensors, and of the containers around them."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, list | tuple):
        return [snapshot(part) for part in value]
    if isinstance(value, dict):
        return {key: snapshot(part) for key, part in value.items()}
    return value


def same(before: object, now: object) -> bool:
    """Whether `now` is still what `snapshot` saw."""
    if isinstance(before, torch.Tensor):
        return (before.dtype, before.shape) == (now.dtype, now.shape) and same_bits(before, now)
    if isinstance(before, list):
        return len(before) == len(now) and all(map(same, before, now))
    if isinstance(before, dict):
        return before.keys() == now.keys() and all(same(before[key], now[key]) for key in before)
    return type(before) not in PLAIN or before is now or before == now or before != before


def same_bits(before: torch.Tensor, now: torch.Tensor) -> bool:
    """Of one dtype and shape: NaN equals NaN here, and 0.0 is not -0.0."""
    integers = INTEGERS.get(now.dtype.itemsize)
    if integers and is_plain(before) and is_plain(now):  # three times as fast as bytes
        return before.view(integers).equal(now.detach().view(integers))
    return as_bytes(before).equal(as_bytes(now))


def is_plain(tensor: torch.Tensor) -> bool:
    lazy = tensor.is_conj() or tensor.is_neg() or tensor.is_quantized
    return tensor.layout is torch.strided and tensor.device.type == "cpu" and not lazy


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """[bytes] uint8"""
    dense = tensor.detach().resolve_conj().resolve_neg().cpu()
    flat = dense.to_dense().reshape(-1).contiguous()
    return flat.as_strided((len(flat),), (1,)).view(torch.uint8)  # of one element any stride is


def parameter(function: Callable, index: int) -> str:
    """The name of a function's positional parameter: 'x', or 'number 2' where it has none."""
    try:
        names = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin
        names = []
    if index < len(names) and names[index].kind is not inspect.Parameter.VAR_POSITIONAL:
        return names[index].name
    return f"number {index + 1}"
