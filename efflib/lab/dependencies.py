"""Exercises that call earlier ones: a mistake there may show here, and the card should say so."""

from collections.abc import Callable, Mapping, Sequence
from types import CodeType

from efflib.lab.exercises import Exercise
from efflib.lab.report import TestReport


def names_used(function: object) -> set[str]:
    """The global names that a function mentions, also in functions inside of it."""
    code = getattr(function, "__code__", None)
    return names_in(code) if isinstance(code, CodeType) else set()


def names_in(code: CodeType) -> set[str]:
    inside = [names_in(const) for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*inside)


def failing_below(
    exercise: Exercise,
    exercises: Mapping[str, Exercise],
    namespace: Mapping[str, object],
    run: Callable[[str], Sequence[TestReport]],
) -> list[Exercise]:
    """Other exercises whose functions this one's mention, and of which a public test fails now.

    run: runs the public tests of an exercise, by its key.
    """
    used = set().union(*(names_used(namespace.get(name)) for name in exercise.functions))
    return [
        other
        for key, other in exercises.items()
        if key != exercise.key
        and used & set(other.functions)
        and any(report.outcome != "passed" for report in run(key))
    ]


def mend_first(failing: Sequence[Exercise]) -> str:
    """'Exercise 1 fails a public test, and this exercise calls it: mend that first.', or nothing"""
    if not failing:
        return ""
    names = " and ".join(exercise.label for exercise in failing).capitalize()
    one = len(failing) == 1
    return (
        f"{names} {'fails' if one else 'fail'} a public test, and this exercise calls "
        f"{'it' if one else 'them'}: mend that first."
    )
