"""From test reports to points and to the words that a student may read.

Only the outcome "passed" of a declared test gives points, and the points are the declared ones.
A public test's message says what it observed.  A hidden test's message is one of a few fixed
sentences, so that neither its data nor its expectation can leave with it: not even the kind of an
exception is told, which student code could choose by what it was given.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from autograder.grading.results import NOT_ATTEMPTED, CellRun, ExerciseResult, TestResult
from autograder.labs.manifest import HIDDEN_TESTS, LabSpec, TestDecl

if TYPE_CHECKING:  # importing efflib.lab imports torch
    from efflib.lab.report import TestReport

MESSAGE_CHARS = 400
ANSWER_CHARS = 50_000  # of one answer that is kept with the result
CUT = "\n… the rest is left out: {} characters in all"
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
NOT_REPORTED = "the test did not report"
FIXED = {  # kinds that are no exceptions of the student's (see lab/calls.py and session.py)
    "Undefined": "the function is not defined",
    "ChangedArgument": "the function changed one of its arguments in place",
    "MemoryLimit": "stopped: it used too much memory",
    "Killed": "stopped: the process in which it ran was killed",
    "Exit": "stopped: it ended the process in which it ran",
    "Protocol": "stopped: it disturbed the process in which it ran",
}


def judge(
    declared: Sequence[TestDecl], reports: Iterable["TestReport"], call_seconds: float
) -> list[TestResult]:
    """One result for every declared test; reports of anything else count for nothing."""
    found = {(kind_of(report), report.test): report for report in reports}
    return [result_of(test, found.get(test.key), call_seconds) for test in declared]


def kind_of(report: "TestReport") -> str:
    return "hidden" if report.file == HIDDEN_TESTS else "public"


def result_of(test: TestDecl, report: "TestReport | None", call_seconds: float) -> TestResult:
    passed = report is not None and report.outcome == "passed"
    return TestResult(
        exercise=test.exercise,
        test=test.test,
        title=test.title,
        kind=test.kind,
        outcome=report.outcome if report is not None else "failed",
        points=test.points if passed else 0.0,
        max_points=test.points,
        invariant=test.invariant,
        cause=test.cause,
        message="" if passed else message_of(test, report, call_seconds),
    )


def message_of(test: TestDecl, report: "TestReport | None", call_seconds: float) -> str:
    if report is None:
        return NOT_REPORTED
    if report.kind == "NotImplementedError":
        return NOT_ATTEMPTED
    if test.kind == "public":
        return plain(report.observed)
    if report.kind == "Timeout":
        return f"stopped after {call_seconds:g} s"
    if report.kind in FIXED:
        return FIXED[report.kind]
    return "your function raised an exception" if report.kind else ""


def plain(text: str) -> str:
    """One line of at most 400 characters, without control and direction characters."""
    line = " ".join(text.split())[:MESSAGE_CHARS]
    return "".join("?" if unicodedata.category(c)[0] == "C" else c for c in line)


def kept_answer(text: str) -> str:
    """What a student wrote, for showing: bounded, without control and direction characters."""
    shown = text if len(text) <= ANSWER_CHARS else text[:ANSWER_CHARS] + CUT.format(len(text))
    return UNSEEN.sub("?", shown)


def by_exercise(lab: LabSpec, tests: Sequence[TestResult]) -> tuple[ExerciseResult, ...]:
    """The tests of each exercise and their points, in the order of exercises.toml."""
    exercises = []
    for name, about in lab.exercises.items():
        own = tuple(test for test in tests if test.exercise == name)
        exercises.append(
            ExerciseResult(
                exercise=name,
                title=about.title,
                points=total(test.points for test in own),
                max_points=about.points,
                tests=own,
            )
        )
    return tuple(exercises)


def total(points: Iterable[float]) -> float:
    """Sum of points, without the rounding noise of adding decimal numbers one by one."""
    return round(math.fsum(points), 9)


def late_notes(cells: Iterable[CellRun], seconds: float, told: Sequence[str]) -> list[str]:
    """Sentences on cells that the time limits stopped, where `told` has none about them yet."""
    notes = []
    for cell in cells:
        where = cell.label[:1].upper() + cell.label[1:]
        if not cell.error or any(note.startswith(where) for note in told):
            continue
        if cell.error.startswith("Timeout"):
            notes.append(f"{where} took longer than {seconds:g} s: it was stopped there.")
        elif cell.error.startswith("not run"):
            notes.append(f"{where} was {cell.error}.")
    return notes


def cell_runs(labels: Sequence[str], reports: Sequence) -> tuple[CellRun, ...]:
    """What is told about each cell that ran: its error in one line, or None, and its time."""
    return tuple(
        CellRun(
            label=label,
            error=plain(report.error) if report.error else None,
            seconds=round(report.seconds, 3),
        )
        for label, report in zip(labels, reports, strict=False)
    )
