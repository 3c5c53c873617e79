"""What a test file imports: `@exercise` declares a test, `expect_close` compares and explains."""

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
):
    """Declare a test `def test_name(student, rng)` of an exercise.

    invariant: what must hold, in one sentence; cause: the usual reason why it does not.
    seconds: time limit of one call, where the lab's own is too short.
    """
    if points <= 0:
        raise ValueError(f"points must be positive, got {points}")

    def mark(function):
        setattr(function, MARK, Declared(exercise, points, invariant, cause, seconds))
        return function

    return mark


def expect_close(
    observed: Tensor, expected: Tensor, *, what: str, atol: float = 0.0, rtol: float = 0.0
) -> None:
    """Fail, in words, unless |observed - expected| <= atol + rtol |expected| everywhere.

    Shapes must be equal; dtypes need not (both are compared in float64).
    """
    assert isinstance(observed, Tensor), f"{what} is a {type(observed).__name__}, not a tensor"
    assert observed.shape == expected.shape, (
        f"{what} has shape {list(observed.shape)}, expected {list(expected.shape)}"
    )
    if expected.numel() == 0:
        return
    a, b = observed.detach().double(), expected.detach().double()
    same = (a == b) | (a.isnan() & b.isnan())
    excess = torch.where(same, 0.0, (a - b).abs() - atol - rtol * b.abs())
    excess = torch.where(excess.isnan(), torch.inf, excess)
    wrong = excess > 0
    if not wrong.any():
        return
    worst = int(excess.argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(worst), a.shape)]
    where = f" at {index}" if index else ""
    raise AssertionError(
        f"{what} is {a.flatten()[worst].item():.6g}{where}, expected "
        f"{b.flatten()[worst].item():.6g} ({int(wrong.sum())} of {wrong.numel()} values differ)"
    )
