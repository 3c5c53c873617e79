"""Exercises that call earlier ones: a mistake there may show here, and the card should say so."""

from collections.abc import Mapping, Sequence
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
    reports: Mapping[str, Sequence[TestReport]],
    namespace: Mapping[str, object],
) -> list[Exercise]:
    """Other exercises whose functions this one's mention, and of which a public test failed."""
    used = set().union(*(names_used(namespace.get(name)) for name in exercise.functions))
    return [
        other
        for key, other in exercises.items()
        if key != exercise.key
        and used & set(other.functions)
        and any(report.outcome != "passed" for report in reports.get(key, ()))
    ]


def hint_at(failing: Sequence[Exercise]) -> str:
    """' It calls exercise 1, of which a public test fails: mend that first.', or nothing."""
    if not failing:
        return ""
    names = " and ".join(exercise.label for exercise in failing)
    return f" It calls {names}, of which a public test fails: mend that first."
