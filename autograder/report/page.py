"""Renders the report of a class; everything from a student is escaped by the template."""

import itertools
import math
import statistics
from collections.abc import Iterator

import jinja2
from markupsafe import Markup

from autograder.grading.results import ExerciseResult, Report
from autograder.intake.choose import MARKED_LATE
from autograder.intake.timestamps import duration
from autograder.report.board import board_of
from autograder.report.items import FEW, Item, analyse
from autograder.report.rows import Row, graded_rows, key_of
from autograder.report.style import CSS
from autograder.report.summary import (
    Bin,
    causes,
    histogram,
    of_status,
    quartiles,
    slow_cells,
)
from autograder.report.template import PAGE

GENERATOR = "autograder report"
MANY, NARROW = 60, 40  # rows that are drawn lower, columns with numbers on end
MARKS = {"passed": "", "failed": "f", "not attempted": "o", "not verified": "v"}
APART = {
    "missing": "Handed in nothing",
    "rejected": "Handed in something that could not be graded (0 points)",
    "unclear": "Not graded, since nobody can tell whose it is",
    "fault": "Not graded, since the grader failed: grade again",
}
WIDTH, HEIGHT, BELOW = 660, 190, 30  # of the histogram, in its own units
TEMPLATE = jinja2.Environment(autoescape=True).from_string(PAGE)


def report_page(report: Report, title: str, named: bool = False) -> str:
    """The page as HTML. named: ids, names and reasons stand on it, otherwise only numbers."""
    rows = graded_rows(report, named)
    items, scores = analyse(rows), [row.result.score for row in rows]
    top = max((result.max_score for result in report.results), default=0.0)
    counted = sum(not row.untouched for row in rows)
    return TEMPLATE.render(
        generator=GENERATOR, css=Markup(CSS), title=title, lab=report.lab, named=named, rows=rows,
        top=top, many=MANY, narrow=NARROW, items=items, failing=failing(items),
        passing=[item for item in items if item.passed_by_all],
        counted=counted, few=FEW if counted < FEW else 0,
        tiles=tiles(report, rows, scores), warnings=warnings(report), graded_at=graded_at(report),
        histogram=Markup(bars(histogram(scores, top))), quartiles=quartiles(scores),
        mean=statistics.fmean(scores) if scores else math.nan,
        spread=statistics.pstdev(scores) if scores else math.nan,
        exercises=list(exercises(rows)), groups=groups(items),
        cells=lambda row: cells(row, items), everybody=passed_by(items, all_of_them=True),
        nobody=passed_by(items, all_of_them=False), causes=causes(rows), slow=slow_cells(rows),
        board=board_of(rows), figure=lambda value: f"{value:.4g}",
        grading=grading_seconds(rows), late=[row for row in rows if row.late is not None],
        marked=[row for row in rows if MARKED_LATE in row.result.notes and row.late is None],
        apart=[(name, of_status(report, status)) for status, name in APART.items()],
        number=lambda value: f"{value:g}", one=one_decimal, duration=duration,
        share=lambda value: "-" if math.isnan(value) else f"{value:.0%}",
        correlation=lambda value: "-" if value is None else f"{value:.2f}",
    )  # fmt: skip


def one_decimal(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def tiles(report: Report, rows: list[Row], scores: list[float]) -> list[tuple[str, str]]:
    """The numbers at the top: what is 0 is left out, except who was graded."""
    counts = {"graded": len(rows), "of them untouched": sum(row.untouched for row in rows)}
    counts |= {status: len(of_status(report, status)) for status in APART}
    counts |= {"late": sum(row.late is not None for row in rows)}
    shown = [(name, f"{n}") for name, n in counts.items() if n or name == "graded"]
    if not scores:
        return shown
    middle = [("mean", statistics.fmean(scores)), ("median", statistics.median(scores))]
    return [*shown, *((name, one_decimal(value)) for name, value in middle)]


def warnings(report: Report) -> list[str]:
    """What makes these results less than final."""
    unsafe = sum(result.sandbox == "none" for result in report.results)
    doubtful = sum(result.doubtful for result in report.results)
    suites = {result.suite_hash for result in report.results if result.status == "graded"}
    return [
        *([f"Graded without a sandbox: {unsafe}."] if unsafe else []),
        *([f"Doubtful, since a process was killed: {doubtful}. Grade again."] if doubtful else []),
        *(["Not all were graded with the same tests. Grade again."] if len(suites) > 1 else []),
    ]


def graded_at(report: Report) -> str:
    """When the last submission was graded, to the minute (UTC)."""
    times = [result.started for result in report.results if result.started]
    return max(times)[:16].replace("T", " ") + " UTC" if times else "at no time"


def bars(bins: list[Bin]) -> str:
    """The histogram as SVG; its texts are the numbers that the bars show."""
    highest = max((one.count for one in bins), default=0) or 1
    step, room = WIDTH / len(bins), HEIGHT - BELOW - 20
    told = ", ".join(f"{b.low:g} to {b.high:g} points: {b.count}" for b in bins)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{told}">']
    for index, one in enumerate(bins):
        height, left = room * one.count / highest, index * step
        base = HEIGHT - BELOW
        parts.append(
            f'<rect x="{left + 2:.1f}" y="{base - height:.1f}" width="{step - 4:.1f}" '
            f'height="{height:.1f}"/><text x="{left + step / 2:.1f}" y="{base - height - 5:.1f}" '
            f'text-anchor="middle">{one.count}</text><text x="{left + 2:.1f}" '
            f'y="{base + 16}">{one.low:g}</text>'
        )
    parts.append(f'<line x1="0" x2="{WIDTH}" y1="{HEIGHT - BELOW}" y2="{HEIGHT - BELOW}"/>')
    parts.append(f'<text x="{WIDTH}" y="{HEIGHT - BELOW + 16}" text-anchor="end">points</text>')
    return "".join([*parts, "</svg>"])


def exercises(rows: list[Row]) -> Iterator[dict]:
    """Mean points of each exercise, and how many have all, none, or did not try."""
    names = {part.exercise: part for row in rows for part in row.result.exercises}
    for name, first in names.items():
        parts = [(row, part) for row in rows for part in row.result.exercises
                 if part.exercise == name]  # fmt: skip
        points = [part.points for _, part in parts]
        yield {
            "name": name,
            "title": first.title,
            "top": first.max_points,
            "mean": statistics.fmean(points),
            "full": sum(part.points == part.max_points for _, part in parts),
            "none": sum(part.points == 0 for _, part in parts),
            "open": sum(left_open(row, part) for row, part in parts),
        }


def left_open(row: Row, part: ExerciseResult) -> bool:
    return all(row.states[key_of(test)] == "not attempted" for test in part.tests)


def groups(items: list[Item]) -> list[tuple[str, int]]:
    """Exercises, and over how many columns of the heat map each reaches."""
    by_exercise = itertools.groupby(items, key=lambda item: item.test.exercise)
    return [(name, len(list(own))) for name, own in by_exercise]


def cells(row: Row, items: list[Item]) -> Iterator[tuple[str, str]]:
    """(class, title) of each cell of a row; both empty where the test is passed."""
    for item in items:
        state = row.states.get(key_of(item.test), "not verified")
        mark = MARKS[state]
        yield mark, f"{row.label}, test {item.number} ({item.test.exercise}): {state}"


def failing(items: list[Item]) -> list[Item]:
    """The tests that somebody fails, those that cost the class most first."""
    found = [item for item in items if not item.passed_by_all]
    return sorted(found, key=lambda item: (-item.lost, item.number))


def passed_by(items: list[Item], all_of_them: bool) -> str:
    """Numbers of the tests that everybody, or nobody, passes."""
    found = [i.number for i in items if i.answers and i.passed == (i.answers * all_of_them)]
    return ", ".join(map(str, found))


def grading_seconds(rows: list[Row]) -> tuple[float, float]:
    seconds = [row.result.seconds for row in rows]
    return (statistics.median(seconds), max(seconds)) if seconds else (0.0, 0.0)
