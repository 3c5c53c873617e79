"""Figures of a class beside the item analysis: scores, usual causes, slow cells, who is missing."""

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from autograder.grading.results import CellRun, Report
from autograder.report.rows import Row, key_of, who

BINS = 10
MAX_CAUSES = 15
MAX_MESSAGES = 2  # of a cause, the most frequent
COMMON = 2  # students who must have met a message: one alone might name a person
SLOW_SECONDS = 1.0
NUMBER = re.compile(r"(?<![A-Za-z_])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
RUNS = re.compile(r"#(?:[\s,;()\[\]]+#)+")  # rows of numbers, as tensors are printed


class Bin(NamedTuple):
    low: float
    high: float
    count: int


class Cause(NamedTuple):
    """A usual cause, as the tests declare it, and what it cost."""

    exercise: str
    cause: str
    invariants: list[str]
    students: int
    lost: float  # points of all students together
    messages: list[tuple[str, int]]  # of public tests, with # for numbers -> students


class SlowCell(NamedTuple):
    cell: str
    runs: int
    median: float
    longest: float
    stopped: int  # at the time limit, or not run for lack of time


def histogram(scores: Sequence[float], top: float) -> list[Bin]:
    """Ten bins of equal width from 0 to the most points; the last one holds the most as well."""
    width = top / BINS
    counts = Counter(min(int(score / width), BINS - 1) for score in scores) if top else Counter()
    return [Bin(n * width, (n + 1) * width, counts[n]) for n in range(BINS)]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile; NaN without values."""
    if not values:
        return (math.nan,) * 3
    if len(values) == 1:
        return (values[0],) * 3
    return tuple(statistics.quantiles(values, n=4, method="inclusive"))


def causes(rows: Iterable[Row]) -> list[Cause]:
    """The causes that cost most, of tests that failed although something was attempted."""
    students, lost, messages = defaultdict(set), Counter(), defaultdict(Counter)
    invariants: dict[tuple, dict] = defaultdict(dict)
    for row in rows:
        for exercise in row.result.exercises:
            for test in exercise.tests:
                if row.states[key_of(test)] != "failed":
                    continue
                key = test.exercise, test.cause
                students[key].add(row.number)
                lost[key] += test.max_points - test.points
                invariants[key][test.invariant] = None
                if test.kind == "public" and test.message:
                    messages[key][pattern(test.message)] += 1
    return [
        Cause(*key, list(invariants[key]), len(students[key]), points, common(messages[key]))
        for key, points in lost.most_common(MAX_CAUSES)
    ]


def pattern(message: str) -> str:
    """A message without the numbers in it, which are other ones for every student."""
    return RUNS.sub("# ...", NUMBER.sub("#", message))


def common(messages: Counter) -> list[tuple[str, int]]:
    return [(text, n) for text, n in messages.most_common(MAX_MESSAGES) if n >= COMMON]


def slow_cells(rows: Iterable[Row]) -> list[SlowCell]:
    """Cells that took a second or were stopped in some submission, the slowest first."""
    runs = defaultdict(list)
    for row in rows:
        for cell in row.result.cells:
            runs[kind_of(cell, row.result.answers)].append(cell)
    found = []
    for name, cells in runs.items():
        seconds, stopped = [cell.seconds for cell in cells], sum(map(was_stopped, cells))
        if stopped or max(seconds) >= SLOW_SECONDS:
            middle = statistics.median(seconds)
            found.append(SlowCell(name, len(cells), middle, max(seconds), stopped))
    return sorted(found, key=lambda cell: (-cell.longest, cell.cell))


def kind_of(cell: CellRun, known: Iterable[str]) -> str:
    """The released cell that it is ("ex2", one of known), or what all others are called."""
    name = cell.label.rpartition(", ")[2]
    if name in known:
        return name
    return "set-up" if cell.label.startswith("set-up") else "other cells"


def was_stopped(cell: CellRun) -> bool:
    return (cell.error or "").startswith(("Timeout", "not run"))


def of_status(report: Report, status: str) -> list[str]:
    """Who, and why if there is something to say, of the results of one status."""
    return [
        who(report, result.student) + (f": {result.reason}" if status != "missing" else "")
        for result in report.results
        if result.status == status
    ]
