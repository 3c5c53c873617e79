"""Grades in the columns of Canvas, Moodle and Gradescope: their own export, filled in.

Canvas      the gradebook's export; what comes out has the columns about the student and one
            assignment, "Lab 1 (55)", which Canvas finds by its number (lib/gradebook_exporter.rb
            and lib/gradebook_importer.rb of github.com/instructure/canvas-lms)
Moodle      the grading worksheet of an assignment, with "Grade" filled in.  Moodle wants
            Identifier, Grade and Last modified (grade), the last one unchanged
            (mod/assign/feedback/offline/importgradeslib.php of github.com/moodle/moodle)
Gradescope  its roster or an export of grades, with "Total Score", "Max Points" and "Status", as its
            exports name them; Gradescope itself takes no grades in
otherwise   a roster of one's own, with the columns points, of, taken off, status

Headings are the English ones.  A student without a submission keeps what stands there.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from autograder.errors import UsageError
from autograder.intake.archive import shown
from autograder.intake.names import canonical
from autograder.intake.roster import plain_heading
from autograder.lms.scores import Score, Scores
from autograder.lms.sheet import Sheet

EPS = 1e-6  # between the maxima of a lab here and there
CANVAS_TITLE = re.compile(r"(?P<title>.+) \((?P<number>\d+)\)")
COMPUTED = re.compile(r"(Current|Final|Override) (Score|Points|Grade|Status)")  # Canvas's own sums
GRADESCOPE = ("Total Score", "Max Points", "Status")
OWN = ("points", "of", "taken off", "status")


class Filled(NamedTuple):
    system: str
    heading: list[str]
    rows: list[list[str]]
    stays: list[str]  # who has no submission here and a score there, which is left as it is
    column: str = ""  # heading of the assignment, in Canvas's gradebook


def fill_in(sheet: Sheet, scores: Scores, names: tuple[str, ...], column: str | None) -> Filled:
    """The sheet with grades. names: of the lab; column: heading of Canvas's assignment.

    Raises UsageError: no such column, or another maximum there than here.
    """
    titles = {plain_heading(title) for title in sheet.heading}
    if "section" in titles and plain_heading(sheet.heading[0]) in ("student", "lastname"):
        return canvas(sheet, scores, names, column)
    if column is not None:
        raise UsageError(f"--column is for Canvas's gradebook, which {sheet.path} is not")
    if {"identifier", "grade"} <= titles:
        return moodle(sheet, scores)
    if {"sid", "email"} <= titles:
        return appended("Gradescope", sheet, GRADESCOPE, scores, gradescope)
    return appended("a roster", sheet, OWN, scores, own)


# ---- Canvas -------------------------------------------------------------------------------------


def canvas(sheet: Sheet, scores: Scores, names: tuple[str, ...], column: str | None) -> Filled:
    last = sheet.heading.index("Section")
    possible = next((row for _, row in sheet.lines if "Points Possible" in row[0]), None)
    if possible is None:
        raise UsageError(f"{sheet.path} has no line 'Points Possible': export the gradebook again")
    choice = [
        index
        for index in range(last + 1, len(sheet.heading))
        if not COMPUTED.search(sheet.heading[index]) and "read only" not in possible[index]
    ]
    at = chosen(sheet, choice, names, column)
    same_maximum(sheet, scores, possible[at], sheet.heading[at])
    rows = []
    for line, row in sheet.lines:
        score = scores.by_student.get(sheet.students.get(line, ""))
        rows.append([*row[: last + 1], number(score.points) if score else row[at]])
    heading = [*sheet.heading[: last + 1], sheet.heading[at]]
    return Filled("Canvas", heading, rows, staying(sheet, scores, at), sheet.heading[at])


def other_lab(heading: str, lab: str) -> bool:
    """Whether "Lab 6 (55506)" carries another number than "lab01_quantization"."""
    numbers = [re.match(r"lab\s*0*(\d+)", name, re.IGNORECASE) for name in (heading, lab)]
    return None not in numbers and len({match[1] for match in numbers}) > 1


def staying(sheet: Sheet, scores: Scores, at: int | None) -> list[str]:
    """Who has a score in this column and no submission here; ids, or names of who is unknown."""
    lines = [(sheet.students.get(line, ""), row) for line, row in sheet.lines if at is not None]
    people = [(one, row) for one, row in lines if row[0] and "Points Possible" not in row[0]]
    return [
        one or shown(row[0])
        for one, row in people
        if row[at].strip() and one not in scores.by_student
    ]


def chosen(sheet: Sheet, choice: list[int], names: tuple[str, ...], column: str | None) -> int:
    """The one column whose heading, with or without its number, is the one that is wanted."""
    wanted = {canonical(name) for name in ([column] if column else names)}
    found = [i for i in choice if wanted & {canonical(one) for one in spelled(sheet.heading[i])}]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"'{sheet.heading[i]}'" for i in choice) or "none"
    what = f"{len(found)} assignments" if found else "no assignment"
    raise UsageError(
        f"{sheet.path}: {what} of the name '{column or names[-1]}' (there: {there}): "
        "say which with --column, or create it in Canvas and export the gradebook again"
    )


def spelled(heading: str) -> Iterator[str]:
    yield heading
    if match := CANVAS_TITLE.fullmatch(heading):
        yield match["title"]


# ---- Moodle -------------------------------------------------------------------------------------


def moodle(sheet: Sheet, scores: Scores) -> Filled:
    at, top = (index_of(sheet, name) for name in ("grade", "maximum grade"))
    rows = []
    for line, row in sheet.lines:
        score = scores.by_student.get(sheet.students.get(line, ""))
        if score is not None:
            if top is not None and row[top].strip():
                same_maximum(sheet, scores, row[top], "Maximum grade")
            row = [*row[:at], number(score.points), *row[at + 1 :]]
        rows.append(row)
    return Filled("Moodle", sheet.heading, rows, staying(sheet, scores, at))


def index_of(sheet: Sheet, title: str) -> int | None:
    titles = [plain_heading(one) for one in sheet.heading]
    return titles.index(title) if title in titles else None


# ---- Gradescope, and others ---------------------------------------------------------------------


def gradescope(score: Score | None, top: float) -> list[str]:
    if score is None:
        return ["", number(top), "Missing"]
    return [number(score.points), number(top), "Ungraded" if score.awaits else "Graded"]


def own(score: Score | None, top: float) -> list[str]:
    if score is None:
        return ["", number(top), "", "missing"]
    status = "to be graded by a person" if score.awaits else "graded"
    return [number(score.points), number(top), number(score.taken_off), status]


def appended(
    system: str, sheet: Sheet, titles: tuple[str, ...], scores: Scores, cells: Callable
) -> Filled:
    """The sheet with these columns at its end; what one of that name held stays without a score."""
    kept = [index for index, title in enumerate(sheet.heading) if title not in titles]
    points = sheet.column(titles[0])
    rows = []
    for line, row in sheet.lines:
        score = scores.by_student.get(sheet.students.get(line, ""))
        made = cells(score, scores.top)
        if score is None and points is not None and row[points].strip():
            there = [sheet.column(title) for title in titles]
            made = ["" if index is None else row[index] for index in there]
        rows.append([*(row[index] for index in kept), *made])
    heading = [*(sheet.heading[index] for index in kept), *titles]
    return Filled(system, heading, rows, staying(sheet, scores, points))


def same_maximum(sheet: Sheet, scores: Scores, told: str, where: str) -> None:
    """Points of 100 must not become points of 10 in silence."""
    try:
        top = float(told.replace(",", "."))
    except ValueError:
        raise UsageError(f"{sheet.path}: {where} is out of {told!r}, which is no number") from None
    if abs(top - scores.top) > EPS:
        raise UsageError(
            f"{sheet.path}: {where} is out of {top:g} points, the lab out of {scores.top:g}: "
            "set the maximum there, and export again"
        )


def number(value: float) -> str:
    return f"{round(value, 2):g}"
