"""Item analysis: what each test says about the class, in the terms of classical test theory.

    difficulty       share of the submissions that pass the test (the item's p value)
    discrimination   correlation of passing the test with the points of all other tests (corrected
                     item-total correlation): near 0, who knows the lab passes no more often than
                     others; below 0, less often

Submissions in which nothing was attempted are left out: they would pass for proof that every test
discriminates well.  Source: Crocker and Algina, Introduction to Classical and Modern Test Theory
(1986), chapter 14.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from autograder.grading.results import TestResult
from autograder.report.rows import Row, key_of

LOW_DISCRIMINATION = 0.2  # below it, textbooks advise to look at an item again
SPREAD_EPS = 1e-9  # standard deviations below this are rounding noise
FEW = 30  # submissions, below which these figures are rough


class Item(NamedTuple):
    """A test and its figures; number: its column in the heat map."""

    number: int
    test: TestResult
    answers: int  # submissions that count
    passed: int
    not_attempted: int
    discrimination: float | None  # None: everyone, or nobody, passes
    lost: float  # points that a submission loses here on average

    @property
    def difficulty(self) -> float:
        return self.passed / self.answers if self.answers else math.nan

    @property
    def passed_by_all(self) -> bool:
        return 0 < self.answers == self.passed

    @property
    def wrong_way(self) -> bool:
        """Who passes it has fewer points elsewhere: mostly a fault of the test."""
        return self.discrimination is not None and self.discrimination < 0

    @property
    def remark(self) -> str:
        if not self.answers:
            return ""
        if self.passed in (0, self.answers):
            return "everybody passes" if self.passed else "nobody passes"
        if self.discrimination is None:
            return ""
        if self.wrong_way:
            return "who passes has fewer points elsewhere"
        return "discriminates little" if self.discrimination < LOW_DISCRIMINATION else ""


def analyse(rows: Sequence[Row]) -> list[Item]:
    """One item for every test that a result names, in the order of the lab."""
    tests: dict[tuple[str, str, str], TestResult] = {}
    for row in rows:
        for exercise in row.result.exercises:
            for test in exercise.tests:
                tests.setdefault(key_of(test), test)
    counted = [row for row in rows if not row.untouched]
    return [item(number, test, counted) for number, test in enumerate(tests.values(), 1)]


def item(number: int, test: TestResult, rows: Sequence[Row]) -> Item:
    key = key_of(test)
    passes = [float(row.states.get(key) == "passed") for row in rows]
    rest = [row.result.score - test.max_points * one for row, one in zip(rows, passes, strict=True)]
    passed = int(sum(passes))
    failing = len(rows) - passed
    return Item(
        number=number,
        test=test,
        answers=len(rows),
        passed=passed,
        not_attempted=sum(row.states.get(key) == "not attempted" for row in rows),
        discrimination=correlation(passes, rest),
        lost=test.max_points * failing / len(rows) if rows else 0.0,
    )


def correlation(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Pearson's r; None where one of the two does not vary."""
    if len(xs) < 2:
        return None
    mean_x, mean_y = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    dx, dy = [x - mean_x for x in xs], [y - mean_y for y in ys]
    spread = math.sqrt(math.fsum(d * d for d in dx)) * math.sqrt(math.fsum(d * d for d in dy))
    if spread < SPREAD_EPS:
        return None
    return math.fsum(a * b for a, b in zip(dx, dy, strict=True)) / spread
