"""What a test file imports: `@exercise` declares a test, `expect_close` compares and explains."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MARK = "_exercise"


@dataclass(frozen=True)
class Declared:
    """What a test is about: its exercise, its points, the rule it holds and why people break it."""

    exercise: str
    points: float
    invariant: str
    cause: str
    seconds: float | None = None


def exercise(
    exercise: str, *, points: float, invariant: str, cause: str, seconds: float | None = None
) -> Callable:
    """Declare a test `def test_name(student, rng)` of an exercise, at the top level of its file.

    invariant: what must hold, in one sentence; cause: the usual reason why it does not.
    seconds: time limit of each call in grading, where the lab's own is too short.
    Raises ValueError if the points are not a positive number.
    """
    if not (points > 0 and math.isfinite(points)):
        raise ValueError(f"points must be a positive number, got {points}")

    def mark(function: Callable) -> Callable:
        setattr(function, MARK, Declared(exercise, points, invariant, cause, seconds))
        return function

    return mark


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
    a, b = _comparable(observed.detach(), expected.detach())
    off, allowed = (a - b).abs(), atol + rtol * b.abs()
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
    place = [int(i) for i in torch.unravel_index(torch.tensor(worst), a.shape)]
    where = f" at {place}" if place else ""
    seen, right = (_number(t.flatten()[worst].item(), 6) for t in (a, b))
    far, limit = (_number(t.flatten()[worst].item(), 3) for t in (off, allowed.expand_as(off)))
    many = f"; {int(wrong.sum())} of {wrong.numel()} values differ" if wrong.numel() > 1 else ""
    kinds = f"; its dtype is {a.dtype}, not {b.dtype}" if a.dtype != b.dtype else ""
    return f"{what} is {seen}{where}, expected {right} (off by {far}, allowed {limit}{many}{kinds})"


def _number(value: bool | int | float | complex, digits: int) -> str:
    return str(value) if isinstance(value, int) else f"{value:.{digits}g}"
