"""What `autograder grade` and `autograder triad` do, and how they show it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from autograder.errors import StorageError, UsageError
from autograder.grading.batch import cache_dir, grade_many, previous_results
from autograder.grading.changes import differences
from autograder.grading.results import Result, write_report
from autograder.intake.discover import Rejected, Submission, discover
from autograder.intake.notebook import Notebook, parse_notebook
from autograder.intake.roster import read_map, read_roster
from autograder.labs.manifest import LabSpec, lab_names, load_lab
from autograder.triad.judge import Row, joined, missing_variants
from autograder.triad.mutants import prepare, problems_of, read_equivalent, run_mutants
from autograder.triad.run import run_seeds, run_triad
from autograder.triad.table import mutant_rows, mutant_table, mutants_markdown, triad_table
from autograder.triad.variants import NO_WORK, collect_variants

if TYPE_CHECKING:  # importing nbgrader takes a second
    from autograder.nbgrader.gradebook import Late
    from autograder.nbgrader.recording import Recorded

APART = ("missing", "unclear")  # states of results that are told below the table
MAX_NAMES = 10  # of students in one sentence
CONNECT_SECONDS = 10  # to a Dask scheduler
WIDTH = 120  # of tables that do not go to a terminal


def console() -> Console:
    own = Console()
    return own if own.is_terminal else Console(width=WIDTH)


def grade_class(
    root: Path,
    lab_name: str,
    path: Path,
    *,
    roster: Path | None = None,
    mapping: Path | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    json: Path | None = None,
    regrade: bool = False,
    unsafe: bool = False,
) -> list[Result]:
    """Intake, grading, gradebook, feedback, table. Raises LabError, IntakeError, StorageError."""
    from autograder.nbgrader.recording import record

    lab = load_lab(lab_name, root)
    submissions, cache = class_rows(path, lab, roster, mapping), cache_dir(root, lab)
    before = previous_results(cache, submissions)
    with executor_of(scheduler) as executor:
        graded = grade_many(
            lab, submissions, jobs=jobs, executor=executor, cache=cache, regrade=regrade,
            unsafe=unsafe,
        )  # fmt: skip
        recorded = []
        recording = record(root, lab, submissions, graded)
        for row in with_progress(recording, len(submissions), f"grading {lab.name}"):
            show_differences(before.get(row.result.student), row.result)
            recorded.append(row)
    recorded.sort(key=lambda row: row.result.student)
    results = [row.result for row in recorded]
    if json is not None:
        write_report(json, lab.name, results)
    show_results(lab, [row for row in recorded if row.result.status not in APART])
    show_apart(results)
    complain_of_unrecorded(recorded)
    return results


def complain_of_unrecorded(recorded: list["Recorded"]) -> None:
    """Raises StorageError if there is a result that is graded, and not in the gradebook."""
    missing = [row for row in recorded if row.trouble]
    if missing:
        names = ", ".join(row.result.student for row in missing[:MAX_NAMES])
        more = ", ..." if len(missing) > MAX_NAMES else ""
        raise StorageError(
            f"not recorded: {names}{more} ({missing[0].trouble}). What is graded is stored: "
            "the same command again records it"
        )


def class_rows(
    path: Path, lab: LabSpec, roster: Path | None, mapping: Path | None
) -> list[Submission | Rejected]:
    """What everyone handed in. Raises UsageError, IntakeError: what is wrong with the files."""
    people = read_roster(roster) if roster else None
    return discover(path, lab, people, read_map(mapping, people) if mapping else None)


@contextmanager
def executor_of(scheduler: str | None) -> Iterator:
    """None (local processes), or an executor on a Dask cluster, which needs the same folders."""
    if scheduler is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        extra = "pip install 'efficient-llm-course[cluster]'"
        raise UsageError(f"--scheduler needs Dask: {extra}") from None
    try:
        client = Client(scheduler, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise UsageError(f"--scheduler: no Dask scheduler at {scheduler} ({error})") from None
    with client:
        yield client.get_executor(pure=False)


def with_progress(items: Iterable, total: int, what: str) -> Iterator:
    """The items, with a bar and the time that is left on a terminal's stderr."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    out = Console(stderr=True)
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        for item in items:
            progress.advance(task)
            yield item


# ---- tables -------------------------------------------------------------------------------------


def show_differences(before: Result | None, after: Result) -> None:
    """What a new result changed, test by test; nothing if it is the first, or the same."""
    if before is not None and after.status == "graded":
        for line in differences(before, after):
            console().print(line, markup=False, highlight=False, soft_wrap=True)


def show_results(lab: LabSpec, recorded: list["Recorded"]) -> None:
    """One line per student: score, points of each exercise, notes, and what was taken off."""
    table = Table(title=f"{lab.name}: {lab.title}")
    table.add_column("student")
    table.add_column(f"score / {lab.max_score:g}", justify="right")
    late = any(row.late for row in recorded)
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


def late_words(late: "Late | None") -> str:
    """ "90 - 45 = 45": points with those given by hand, what is taken off, what remains."""
    if late is None:
        return ""
    return f"{late.points:g} - {late.taken_off:g} = {late.points - late.taken_off:g}"


def remarks(row: "Recorded") -> str:
    """Why there is no grade, or how many notes; and what else one should know."""
    result, count = row.result, len(row.result.notes)
    said = result.reason or (f"{count} note{'s' * (count > 1)}" if count else "")
    said += " (no sandbox)" if result.sandbox == "none" else ""
    return f"not recorded: {row.trouble} {said}".strip() if row.trouble else said


def show_apart(results: list[Result]) -> None:
    """Who handed in nothing, and what nobody could assign: no grades, so not in the table."""
    out = console()
    missing = [result.student for result in results if result.status == "missing"]
    if missing:
        out.print(f"\nNothing handed in ({len(missing)}): {', '.join(missing)}", markup=False)
    unclear = [result for result in results if result.status == "unclear"]
    if unclear:
        out.print(f"\nNot graded and not in the gradebook ({len(unclear)}):", markup=False)
        for result in unclear:
            out.print(f"  {result.reason}", markup=False, soft_wrap=True)


# ---- triads and mutants -------------------------------------------------------------------------


def triad_labs(
    root: Path,
    names: list[str] | None,
    *,
    seeds: int = 1,
    jobs: int | None = None,
    unsafe: bool = False,
) -> bool:
    """Kill tables of the labs (default: all); True if nothing is wrong in any.

    seeds: with more than one, all variants also run under each of so many seeds (run_seeds).
    """
    well = True
    for lab, solved in solved_labs(root, names):
        total = len(collect_variants(lab, solved))
        graded = run_triad(lab, solved, jobs=jobs, unsafe=unsafe)
        rows = list(with_progress(graded, total, f"triad of {lab.name}"))
        rows.sort(key=lambda row: row.variant.student)
        if seeds > 1:
            more = run_seeds(lab, solved, seeds, jobs=jobs)
            what = f"{lab.name} under {seeds} seeds"
            rows = joined(rows, list(with_progress(more, total - NO_WORK, what)))
        missing = missing_variants(lab, rows)
        show_triad(lab, rows, missing)
        well = well and not missing and not any(row.problem for row in rows)
    return well


def solved_labs(root: Path, names: list[str] | None) -> Iterator[tuple[LabSpec, Notebook]]:
    """The labs of these names (default: all) with the cells of their solved notebooks."""
    from autograder.labs.source import build_source

    for name in names or lab_names(root):
        lab = load_lab(name, root)
        yield lab, parse_notebook(build_source(root, name).read_bytes())


def show_triad(lab: LabSpec, rows: list[Row], missing: list[str]) -> None:
    out = console()
    out.print(triad_table(lab, rows), markup=False)
    for line in missing:
        out.print(line, markup=False)
    wrong = [row for row in rows if row.variant.kind == "wrong"]
    killed = sum(not row.problem for row in wrong)
    bad = sum(bool(row.problem) for row in rows) + len(missing)
    out.print(f"{killed} of {len(wrong)} wrong variants killed as declared; {bad} problems")


def mutants_of_labs(
    root: Path,
    names: list[str] | None,
    *,
    jobs: int | None = None,
    markdown: Path | None = None,
) -> bool:
    """Mutants of the labs' solutions; True if every survivor is judged. markdown: a table there."""
    well, tables = True, []
    for lab, solved in solved_labs(root, names):
        mutants = prepare(lab, solved)
        found = with_progress(
            run_mutants(lab, solved, mutants, jobs=jobs), len(mutants), f"mutants of {lab.name}"
        )
        verdicts = [verdict for verdict in found if verdict is not None]
        equivalent = read_equivalent(lab)
        tables.append((lab, mutant_rows(lab, verdicts, equivalent)))
        out, problems = console(), problems_of(verdicts, equivalent)
        out.print(mutant_table(*tables[-1]), markup=False)
        for line in problems:
            out.print(line, markup=False, soft_wrap=True, highlight=False)
        well = well and not problems
    if markdown is not None:
        markdown.write_text(mutants_markdown(tables), encoding="utf-8")
    return well
