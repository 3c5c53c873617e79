"""The students of a report, in an order and under labels that say nothing about who they are.

Rows are sorted by what the page shows of them (score, then outcomes), never by name or id.  The
label is the place in that order, so who holds the roster cannot find out from a label whose it is.
"""

from typing import NamedTuple

from autograder.grading.results import NOT_ATTEMPTED, Late, Report, Result, TestResult

STATES = ("passed", "failed", "not attempted", "not verified")


class Row(NamedTuple):
    """One graded submission."""

    number: int  # place in the order, from 1
    label: str  # the number; with names, id and name as well
    result: Result
    states: dict[tuple[str, str, str], str]  # key of a test -> one of STATES
    late: Late | None

    @property
    def untouched(self) -> bool:
        """Nothing was attempted: such a submission says nothing about the tests."""
        return set(self.states.values()) <= {"not attempted"}


def key_of(test: TestResult) -> tuple[str, str, str]:
    return test.exercise, test.kind, test.test


def state_of(test: TestResult) -> str:
    """What became of a test: an outcome, or "not attempted", which is told apart from a failure."""
    if test.outcome in ("passed", "not verified"):
        return test.outcome
    return "not attempted" if test.message == NOT_ATTEMPTED else "failed"


def graded_rows(report: Report, named: bool = False) -> list[Row]:
    """The graded submissions, best first."""
    found = []
    for result in report.results:
        if result.status == "graded":
            tests = [test for exercise in result.exercises for test in exercise.tests]
            states = {key_of(test): state_of(test) for test in tests}
            found.append((result, states))
    found.sort(key=lambda pair: (-pair[0].score, sorted(pair[1].items()), -pair[0].seconds))
    return [
        Row(number, label(report, number, result, named), result, states, late_of(report, result))
        for number, (result, states) in enumerate(found, 1)
    ]


def label(report: Report, number: int, result: Result, named: bool) -> str:
    return f"{number} {who(report, result.student)}" if named else f"{number}"


def late_of(report: Report, result: Result) -> Late | None:
    late = report.late.get(result.student)
    return late if late is not None and late.seconds else None


def who(report: Report, student: str) -> str:
    """Id and, if it is known, name."""
    name = report.names.get(student)
    return f"{student} ({name})" if name and name != student else student
