"""`autograder grade`: intake, grading, recording, table."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from autograder.commands.options import roster_of
from autograder.commands.people import about_roster, without_roster
from autograder.commands.tables import (
    APART,
    show_apart,
    show_differences,
    show_lateness,
    show_results,
    tell,
    with_progress,
)
from autograder.errors import StorageError, UsageError, files_told
from autograder.grading.batch import cache_dir, grade_many, previous_results, stored_result
from autograder.grading.judge import plain
from autograder.grading.on_dask import OnDask
from autograder.grading.results import Report, Result, write_report
from autograder.intake.discover import Rejected, Submission, discover
from autograder.intake.roster import Roster, read_map, read_roster
from autograder.labs.manifest import LabSpec, load_lab

if TYPE_CHECKING:  # importing nbgrader takes a second
    from autograder.nbgrader.recording import Recorded

MAX_NAMES = 10  # of students in one sentence
CONNECT_SECONDS = 10  # to a Dask scheduler


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
    older: bool = False,
) -> list[Result]:
    """Intake, grading, gradebook, feedback, table. Raises LabError, IntakeError, StorageError."""
    lab, roster = load_lab(lab_name, root), roster_of(root, roster)
    people = read_roster(roster) if roster else None
    mapped = read_map(mapping, people) if mapping else {}
    submissions, cache = discover(path, lab, people, mapped), cache_dir(root, lab)
    before = previous_results(cache, submissions)
    with executor_of(scheduler) as executor:
        graded = grade_many(
            lab, submissions, jobs=jobs, executor=executor, cache=cache, regrade=regrade,
            unsafe=unsafe,
        )  # fmt: skip
        about_people(root, lab, submissions, roster, people, set(mapped.values()))
        from autograder.nbgrader.recording import record  # takes a second: the server is starting

        recorded = []
        recording = record(root, lab, submissions, graded, older=older)
        for row in with_progress(recording, len(submissions), f"grading {lab.name}"):
            show_differences(None if row.stays else before.get(row.result.student), row)
            recorded.append(row)
    recorded.sort(key=lambda row: row.result.student)
    absent = [row for row in recorded if row.result.status in APART]
    recorded = [kept for row in recorded if (kept := standing(row, cache))]
    results = [row.result for row in recorded]
    if json is not None:
        with files_told(json):
            write_report(json, report_of(lab, submissions, recorded))
    show_tables(lab, recorded, absent, {row.student: row.name for row in submissions})
    complain_of_unrecorded(recorded)
    return results


def show_tables(
    lab: LabSpec, recorded: list["Recorded"], absent: list["Recorded"], names: dict[str, str]
) -> None:
    """names: by id, "" where nobody knows it."""
    apart = {row.result.student for row in absent}
    present = [row for row in recorded if row.result.student not in apart]
    show_results(lab, present)
    show_lateness(present)
    show_apart(absent, names)


def standing(row: "Recorded", cache: Path) -> "Recorded | None":
    """The row with the result that is recorded, where that is not the one just made.

    None, which is told, where its details are stored no more.
    """
    about = row.stays
    if about is None:
        return row
    digest = about.get("submission_hash", "")
    kept = stored_result(cache, row.result.student, digest) if digest else None
    if kept is None and about.get("status") == "rejected":
        kept = replace(row.result, status="rejected", reason=about["reason"], score=0.0,
                       exercises=(), answers={})  # fmt: skip
    if kept is None:
        tell(f"{row.result.student}: graded before, and without details now (not in --json)")
    return kept and row._replace(result=kept)


def report_of(
    lab: LabSpec, submissions: list[Submission | Rejected], recorded: list["Recorded"]
) -> Report:
    return Report(
        lab=lab.name,
        results=tuple(row.result for row in recorded),
        names={row.student: plain(row.name) for row in submissions if row.name},
        late={row.result.student: row.late for row in recorded if row.late is not None},
        hand_ins={row.result.student: row.hand_ins for row in recorded if row.hand_ins > 1},
    )


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


def about_people(
    root: Path,
    lab: LabSpec,
    rows: list[Submission | Rejected],
    roster: Path | None,
    people: Roster | None,
    mapped: set[str],
) -> None:
    """Tells what is odd about who handed in. Raises UsageError if known people get other ids."""
    from autograder.nbgrader.people import known_people  # takes a second: the server is starting

    known = known_people(root)
    if people is None:
        said = without_roster(rows, mapped, known)
    else:
        said = about_roster(roster, people, known, root, lab.name)
    for line in said:
        tell(line)


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
        yield OnDask(client)
