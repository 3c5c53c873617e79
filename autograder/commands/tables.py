"""What `autograder grade` prints: progress, what a regrade changed, the table of results."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from autograder.grading.changes import differences
from autograder.grading.judge import plain
from autograder.grading.results import Late, Result
from autograder.intake.choose import MARKED_LATE
from autograder.intake.timestamps import duration
from autograder.labs.manifest import LabSpec

if TYPE_CHECKING:  # importing nbgrader takes a second
    from autograder.nbgrader.recording import Recorded

APART = ("missing", "unclear")  # states of results that are told below the table
WIDTH = 120  # of tables that do not go to a terminal


def console() -> Console:
    own = Console()
    return own if own.is_terminal else Console(width=WIDTH)


def with_progress(items: Iterable, total: int, what: str) -> Iterator:
    """The items, with a bar and the time that is left on a terminal's stderr."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    out = Console(stderr=True)
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        for item in items:
            progress.advance(task)
            yield item


def tell(line: str) -> None:
    console().print(line, markup=False, highlight=False, soft_wrap=True)


def show_differences(before: Result | None, row: "Recorded") -> None:
    """What a new result changed, test by test; nothing if it is the first, or the same."""
    if row.said:
        tell(row.said)
    if before is not None and row.result.status == "graded":
        for line in differences(before, row.result):
            tell(line)


def show_results(lab: LabSpec, recorded: list["Recorded"]) -> None:
    """One line per student: score, points of each exercise, notes, and what was taken off."""
    table = Table(title=f"{lab.name}: {lab.title}")
    table.add_column("student")
    table.add_column(f"score / {lab.max_score:g}", justify="right")
    late = any(row.late and row.late.dated for row in recorded)
    if late:
        table.add_column("late")
    for name, exercise in lab.exercises.items():
        table.add_column(f"{name} / {exercise.points:g}", justify="right")
    table.add_column("notes")
    for row in recorded:
        result = row.result
        points = {part.exercise: f"{part.points:g}" for part in result.exercises}
        score = f"{result.score:g}" if result.status != "fault" else "?"
        own = [points.get(name, "") for name in lab.exercises]
        penalty = [late_words(row.late)] if late else []
        table.add_row(result.student, score, *penalty, *own, remarks(row))
    console().print(table, markup=False)
    if any(row.result.notes or row.result.look for row in recorded):
        tell("Notes stand on the feedback pages (feedback/<id>/) and in what --json writes.")


def late_words(late: Late | None) -> str:
    """ "2 h: 90 - 45 = 45": how late; all points, what is taken off, what remains."""
    if late is None:
        return ""
    if not late.dated:
        return "not known"
    extended = f" (extended to {late.due})" if late.extended else ""
    if not late.seconds:
        return f"on time{extended}"
    remains = f"{late.points:g} - {late.taken_off:g} = {late.points - late.taken_off:g}"
    told = remains if late.taken_off else "nothing taken off"
    return f"{duration(late.seconds)}: {told}{extended}"


def show_lateness(recorded: list["Recorded"]) -> None:
    """Whose lateness nobody can tell, and whom the course system marks as late."""
    undated = [row for row in recorded if row.late and not row.late.dated]
    dated = {row.result.student for row in recorded if row.late and row.late.dated}
    marked = [f"{row.result.student} (extended to {row.late.due})" if row.late and row.late.extended
              else row.result.student for row in recorded
              if MARKED_LATE in row.result.notes and row.result.student not in dated]  # fmt: skip
    if undated:
        tell(
            f"\nFor {len(undated)} of {len(recorded)} nothing says when it was handed in: nothing "
            "was taken off for lateness. The course system's own rule for late work has to do it."
        )
    if marked:
        tell(f"Marked as late by the course system: {', '.join(marked)}")


def remarks(row: "Recorded") -> str:
    """Why there is no grade, or how many notes; and what else one should know."""
    result, count = row.result, len(row.result.notes)
    said = result.reason or (f"{count} note{'s' * (count > 1)}" if count else "")
    if result.look:
        answers = f"{len(result.look)} answer{'s' * (len(result.look) > 1)}"
        said = ", ".join(filter(None, [said, f"{answers} to look for"]))
    said += f" (hand-in {row.hand_ins})" if row.hand_ins > 1 else ""
    said += " (no sandbox)" if result.sandbox == "none" else ""
    said += " (doubtful: its process was killed; run this again)" if result.doubtful else ""
    return f"not recorded: {row.trouble} {said}".strip() if row.trouble else said


def show_apart(rows: list["Recorded"], names: dict[str, str]) -> None:
    """Who handed in nothing, and what nobody could assign: no grades, so not in the table."""
    out = console()
    for before, what in ((False, "Nothing handed in"), (True, "Not here, and graded before")):
        missing = [row for row in rows if row.result.status == "missing"]
        absent = [row.result.student for row in missing if (row.stays is not None) == before]
        missing = [f"{one} ({plain(names[one])})" if names.get(one) else one for one in absent]
        if missing:
            out.print(f"\n{what} ({len(missing)}): {', '.join(missing)}", markup=False)
    unclear = [row.result for row in rows if row.result.status == "unclear"]
    if unclear:
        out.print(f"\nNot graded and not in the gradebook ({len(unclear)}):", markup=False)
        for result in unclear:
            out.print(f"  {result.reason}", markup=False, soft_wrap=True)


# ---- triads and mutants -------------------------------------------------------------------------
