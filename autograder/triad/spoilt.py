"""Results of a function in another form: all NaN, complex, in another dtype, with other strides.

A leaf takes a tensor, a number or a module and returns what takes its place; the same object where
there is nothing to change.
"""

import copy
import inspect
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn


def changed(value, leaf: Callable, acted: Callable):
    """The value with every tensor, number and module in it as `leaf` makes it."""
    if isinstance(value, tuple | list):
        parts = [changed(part, leaf, acted) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {key: changed(part, leaf, acted) for key, part in value.items()}
    made = leaf(value)
    if made is not value:
        acted()
    return made


def result_changed(leaf: Callable) -> Callable:
    return lambda function, acted: lambda bound: changed(call(function, bound), leaf, acted)


def call(function: Callable, bound: inspect.BoundArguments):
    return function(*bound.args, **bound.kwargs)


def filled(number: float) -> Callable:
    """Every number becomes this one; integers and bools become floats."""

    def leaf(value):
        if isinstance(value, Tensor) and value.numel():
            dtype = value.dtype if value.is_floating_point() else torch.float32
            return torch.full_like(value, number, dtype=dtype)
        if isinstance(value, nn.Module):
            return converted(value, lambda tensor: torch.full_like(tensor, number))
        return number if isinstance(value, int | float) else value

    return leaf


def as_complex(value):
    if isinstance(value, Tensor):
        return value.to(torch.complex64)
    if isinstance(value, nn.Module):
        return converted(value, lambda tensor: tensor.to(torch.complex64))
    return complex(value) if isinstance(value, int | float) else value


def in_dtype(dtype: torch.dtype) -> Callable:
    """float32 becomes this dtype, all else stays."""

    def leaf(value):
        if isinstance(value, nn.Module):
            return converted(value, leaf)
        return value.to(dtype) if getattr(value, "dtype", None) is torch.float32 else value

    return leaf


def converted(module: nn.Module, leaf: Callable) -> nn.Module | None:
    """A copy with other parameters; the same module if none changes. Ties stay ties."""
    memo: dict[int, nn.Parameter] = {}
    for parameter in module.parameters():
        data = leaf(parameter.data)
        if data is not parameter.data and data.dtype.is_floating_point | data.dtype.is_complex:
            memo[id(parameter)] = nn.Parameter(data, requires_grad=parameter.requires_grad)
    return copy.deepcopy(module, memo) if memo else module


def one_dimension_more(value):
    return value[None] if isinstance(value, Tensor) else value


def number_for_tensor(value):
    """Numbers as tensors without dimensions, and such tensors as numbers."""
    if isinstance(value, Tensor) and value.dim() == 0:
        return value.item()
    return torch.tensor(value) if type(value) in (int, float, bool) else value


def strided(value):
    if not isinstance(value, Tensor) or value.numel() < 2:
        return value
    return torch.stack([value, value], dim=-1)[..., 0]


def described(value):
    if isinstance(value, Tensor):
        return value.dtype, tuple(value.shape)
    if isinstance(value, nn.Module):
        return type(value).__name__, [tuple(p.shape) for p in value.parameters()]
    if isinstance(value, tuple | list):
        return [described(part) for part in value]
    if isinstance(value, dict):
        return {key: described(part) for key, part in value.items()}
    return getattr(value, "__qualname__", None) or repr(value)


def tensors(value) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.parameters()
    elif isinstance(value, tuple | list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors(part)


SPOILT = {
    "nan": result_changed(filled(float("nan"))),
    "inf": result_changed(filled(float("inf"))),
    "complex": result_changed(as_complex),
    "float64": result_changed(in_dtype(torch.float64)),
    "bfloat16": result_changed(in_dtype(torch.bfloat16)),
}
OTHER_FORMS = SPOILT | {
    "one dimension more": result_changed(one_dimension_more),
    "number for tensor": result_changed(number_for_tensor),
    "not contiguous": result_changed(strided),
}
