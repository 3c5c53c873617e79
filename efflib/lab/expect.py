"""Expectations of a test file: each one fails in words that say what came and what was expected."""

import math
from collections.abc import Callable

import numpy
import torch
from torch import Tensor


def expect_number(value: object, call: str) -> int | float:
    """The number that `call` returned; fails for anything else, booleans included."""
    ok = isinstance(value, int | float) and not isinstance(value, bool)
    assert ok, f"{call} returned {type(value).__name__}, not a number"
    return value


def expect_tensor(
    value: object, call: str, dtype: torch.dtype | None = None, shape: tuple | None = None
) -> Tensor:
    """The tensor that `call` returned; fails for another type, dtype or shape."""
    assert isinstance(value, Tensor), f"{call} returned {type(value).__name__}, not a tensor"
    if dtype is not None:
        assert value.dtype == dtype, f"{call} has dtype {value.dtype}, not {dtype}"
    if shape is not None:
        seen, right = list(value.shape), list(shape)
        assert seen == right, f"{call} has shape {seen}, not {right}"
    return value


def expect_tuple(value: object, types: tuple[type, ...], call: str) -> tuple:
    """The parts of the tuple that `call` returned; fails unless they are of these types."""
    kinds = ", ".join(t.__name__ for t in types)
    seen = type(value).__name__
    if isinstance(value, tuple):
        seen = f"({', '.join(type(part).__name__ for part in value)})"
    ok = isinstance(value, tuple) and len(value) == len(types)
    ok = ok and all(isinstance(part, t) for part, t in zip(value, types, strict=True))
    assert ok, f"{call} must return a tuple ({kinds}); it returned {seen}"
    return value


def expect_error(kind: type[Exception], call: Callable[[], object], what: str) -> None:
    """Fails unless call() raises `kind`; another exception goes through."""
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{what}: no {kind.__name__} was raised")


def expect_at_most(value: Tensor | float, bound: Tensor | float, what: str) -> None:
    """Fails, in words, unless value <= bound everywhere; NaN is never at most anything."""
    value, bound = _float64(value), _float64(bound)
    right = value <= bound
    if not right.all():
        wrong = ~right
        value, bound = (x.expand_as(wrong)[wrong].flatten() for x in (value, bound))
        excess = (value - bound).nan_to_num(torch.inf)
        worst = int(excess.argmax())
        seen, most = _number(value[worst].item(), 6), _number(bound[worst].item(), 6)
        many = f" ({int(wrong.sum())} of {wrong.numel()} values)" if wrong.numel() > 1 else ""
        raise AssertionError(f"{what} is {seen}, at most {most} is allowed{many}")


def _float64(x: Tensor | float) -> Tensor:
    return x.double() if isinstance(x, Tensor) else torch.tensor(x, dtype=torch.float64)


def expect_same(observed: Tensor, expected: Tensor, what: str) -> None:
    """Fails unless both have one dtype and shape and are equal value by value, NaN to NaN."""
    expect_tensor(observed, what, expected.dtype, tuple(expected.shape))
    expect_close(observed, expected, what=what)


def expect_close(
    observed: Tensor | float,
    expected: Tensor | float,
    *,
    what: str,
    atol: float = 0.0,
    rtol: float = 0.0,
) -> None:
    """Fail, in words, unless |observed - expected| <= atol + rtol |expected| everywhere.

    Two tensors of one shape, or two numbers.  Dtypes may differ (floats are compared in float64);
    NaN equals NaN, and an infinity only itself.
    """
    if isinstance(expected, Tensor):
        kind = type(observed).__name__
        assert isinstance(observed, Tensor), f"{what} is of type {kind}, not a tensor"
    else:
        number = isinstance(observed, int | float) and not isinstance(observed, bool)
        assert number, f"{what} is of type {type(observed).__name__}, not a number"
        observed, expected = (torch.tensor(x, dtype=torch.float64) for x in (observed, expected))
    assert observed.shape == expected.shape, (
        f"{what} has shape {list(observed.shape)}, expected {list(expected.shape)}"
    )
    assert expected.is_complex() or not observed.is_complex(), f"{what} holds complex numbers"
    a, b = _comparable(observed.detach(), expected.detach())
    if a.equal(b):  # as most are
        return
    off, allowed = (a - b).abs(), atol + rtol * b.abs()
    if (off <= allowed).all() and off.isfinite().all():  # neither NaN nor infinity
        return
    same = (a == b) | (a.isnan() & b.isnan())
    wrong = ~same & (b.isinf() | ~(off <= allowed))
    if wrong.any():
        raise AssertionError(_difference(what, observed, expected, off, allowed, wrong))


def _comparable(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the widest type of their kind: whole numbers are compared exactly."""
    if a.is_complex() or b.is_complex():
        return a.to(torch.complex128), b.to(torch.complex128)
    if a.is_floating_point() or b.is_floating_point():
        return a.double(), b.double()
    return a.long(), b.long()


def _difference(what: str, a: Tensor, b: Tensor, off: Tensor, allowed, wrong: Tensor) -> str:
    """'scale is 2.5 at [1], expected 2 (off by 0.5, allowed 0.1; 1 of 2 values differ)'."""
    excess = torch.where(wrong, (off - allowed).double().nan_to_num(torch.inf), -torch.inf)
    worst = int(excess.flatten().argmax())
    # numpy's: torch.unravel_index imports sympy, 0.3 s in every process whose first test fails
    place = [int(i) for i in numpy.unravel_index(worst, tuple(a.shape))]
    where = f" at {place}" if place else ""
    seen, right = (_number(t.flatten()[worst].item(), 6) for t in (a, b))
    far, limit = (_number(t.flatten()[worst].item(), 3) for t in (off, allowed.expand_as(off)))
    many = f"{int(wrong.sum())} of {wrong.numel()} values differ" if wrong.numel() > 1 else ""
    kinds = "" if a.dtype == b.dtype else f"its dtype is {a.dtype}, not {b.dtype}"
    if b.dtype == torch.float64:  # the test's own precision, which is asked of nobody
        kinds = "" if a.dtype in (torch.float32, torch.float64) else f"its dtype is {a.dtype}"
    finite = math.isfinite(float(off.flatten()[worst]))  # else there is no distance to tell
    about = ([f"off by {far}, allowed {limit}"] if finite else []) + [p for p in (many, kinds) if p]
    about = f" ({'; '.join(about)})" if about else ""
    return f"{what} is {seen}{where}, expected {right}{about}"


def _number(value: bool | int | float | complex, digits: int) -> str:
    return str(value) if isinstance(value, int) else f"{value:.{digits}g}"
