"""`@exercise` declares a test of a lab: what it is about, what it is worth, what it can tell."""

import math
from collections.abc import Callable
from dataclasses import dataclass

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
