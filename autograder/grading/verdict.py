"""Grades one submission: its code in the sandbox, the tests outside, the points by judge.py.

Nothing that a student's process says is taken for more than a return value.
"""

import math
import re
import time
from datetime import UTC, datetime
from pathlib import Path

from autograder.grading import later
from autograder.grading.board import place_of, told_place
from autograder.grading.judge import (
    by_exercise,
    cell_runs,
    judge,
    kept_answer,
    late_notes,
    plain,
    total,
)
from autograder.grading.limited import TimedStudent
from autograder.grading.rebuild import Rebuilt, rebuild
from autograder.grading.results import CellRun, ExerciseResult, Result
from autograder.grading.stubs import tell_apart
from autograder.grading.ungraded import rejected, sandbox_name, sandbox_spec
from autograder.intake.discover import Rejected, Submission
from autograder.intake.notebook import parse_notebook
from autograder.labs.hashing import grader_hash
from autograder.labs.manifest import Budget, LabSpec
from autograder.sandbox.remote import RemoteStudent
from autograder.sandbox.session import KILLED
from efflib.lab.report import TestReport
from efflib.lab.runner import run_tests
from efflib.lab.seeds import derived_seed
from efflib.lab.student import Student

SUBMISSION_SECONDS = 900.0  # of tests; after that every further call fails
SHARE_SECONDS = 120.0  # of cells and tests, while others wait; who needs more waits for them


def grade_one(
    lab: LabSpec,
    submission: Submission | Rejected,
    *,
    seed: int | None = None,
    unsafe: bool = False,
    seconds: float = SUBMISSION_SECONDS,
) -> Result:
    """The result of one submission; whatever the student did ends up in it.

    seconds: of tests; with fewer than SUBMISSION_SECONDS, of cells and tests together, and a result
    that they cut off says so and is doubtful.
    seed: by default of student, lab and suite; each test derives its own from it and its name, so
    that nothing else moves a grade.  Raises SandboxUnavailable, and errors of the course's files.
    """
    if isinstance(submission, Rejected):
        return rejected(lab, submission)
    started, clock = datetime.now(UTC), time.monotonic()
    seed = own_seed(lab, submission) if seed is None else seed
    rebuilt = rebuild(submission.cells, parse_notebook(lab.release_notebook.read_bytes()))
    end = clock + seconds if seconds < SUBMISSION_SECONDS else None
    remote = RemoteStudent(sandbox_spec(lab, unsafe), rebuilt.cells, lab.budget, end=end)
    try:
        reports, doubtful = run_tests_of(lab, remote, seed, end)
        cut_off = time.monotonic() > (end or math.inf)
        cells, notes = run_notes(rebuilt, remote, lab.budget)
        doubtful = doubtful or remote.doubtful or cut_off
        place = place_of(lab, remote, seed, end)  # whatever happens there moves no point
    finally:
        later.do(remote.close)
    parts = judged(lab, reports, rebuilt)
    return Result(
        status="graded",
        score=total(part.points for part in parts),
        exercises=parts,
        written=lab.written,
        notes=tuple(dict.fromkeys(map(plain, [*submission.notes, *notes, *told_place(place)]))),
        board=place,
        doubtful=doubtful,
        cut_off=cut_off,
        cells=cells,
        **timed(started, clock, seed),
        **answered(rebuilt),
        **provenance(lab, submission, unsafe),
    )


def judged(lab: LabSpec, reports: list[TestReport], rebuilt: Rebuilt) -> tuple[ExerciseResult, ...]:
    """Points and words of every exercise."""
    tests = judge(lab.tests, reports, lab.budget.call_seconds)
    return by_exercise(lab, tell_apart(tests, rebuilt.answers, tuple(lab.exercises)))


def own_seed(lab: LabSpec, submission: Submission) -> int:
    """A suite's own seed, if it has one, is known to nobody but its owner."""
    return derived_seed(submission.student, lab.name, *filter(None, [lab.seed]))


def timed(started: datetime, clock: float, seed: int) -> dict[str, str | float]:
    """What else tells one run from another. clock: the monotonic time at which it began."""
    seconds = round(time.monotonic() - clock, 3)
    return {"started": started.isoformat(timespec="seconds"), "seconds": seconds, "seed": seed}


def answered(rebuilt: Rebuilt) -> dict[str, dict[str, str] | str]:
    """What a person is shown of the student's text, and where that person should look for more."""
    own = "\n\n".join(cell.source for cell in rebuilt.cells if cell.kind == "own")
    return {
        "own": kept_answer(own),
        "answers": {name: kept_answer(text) for name, text in rebuilt.answers.items()},
        "look": {name: plain(why) for name, why in rebuilt.look.items()},
    }


def run_notes(
    rebuilt: Rebuilt, remote: RemoteStudent, budget: Budget
) -> tuple[tuple[CellRun, ...], list[str]]:
    """What each cell did, and all sentences for the student on rebuilding and running them."""
    labels = [cell.label for cell in rebuilt.cells]
    cells = cell_runs(labels, remote.cell_reports)
    notes = [*rebuilt.notes, *(told(note, labels) for note in remote.notes)]
    return cells, notes + late_notes(cells, budget.cell_seconds, notes)


def told(note: str, labels: list[str]) -> str:
    """A note of the sandbox's, which counts the cells that ran, in the notebook's numbers."""
    match = re.match(r"(?:code )?cell (\d+) (.*)", note)
    if match and 0 < int(match[1]) <= len(labels):
        note = f"{labels[int(match[1]) - 1]} {match[2]}"
    return note[:1].upper() + note[1:] + ("" if note.endswith(".") else ".")


def provenance(lab: LabSpec, submission: Submission, unsafe: bool) -> dict[str, str | float]:
    return {
        "student": submission.student,
        "lab": lab.name,
        "max_score": lab.max_score,
        "submission_hash": submission.digest,
        "suite_hash": lab.suite_hash,
        "efflib_hash": lab.efflib_hash,
        "grader_hash": grader_hash(),
        "sandbox": sandbox_name(unsafe),
    }


# ---- the run of the tests -----------------------------------------------------------------------


def run_tests_of(
    lab: LabSpec, remote: RemoteStudent, seed: int, end: float | None = None
) -> tuple[list[TestReport], bool]:
    """(reports, whether they are doubtful) of public tests and then of hidden ones.

    What a public test says reaches the student.  So where one was killed, it is repeated before a
    hidden test runs, in a sandbox that has seen no hidden input.  Raises SandboxUnavailable.
    """
    timed = TimedStudent(remote, end or time.monotonic() + SUBMISSION_SECONDS)
    again, doubts = [], []

    def repeat(file: Path, reports: list[TestReport]) -> list[TestReport]:
        names = killed_tests(remote, reports)
        new = repeated(file, remote, timed, seed, names) if names else []
        again.extend(new)
        remote.quiet = True  # public tests come first: what comes now has seen hidden input
        told = {report.test: report for report in reports} | {one.test: one for one in new}
        doubts.append(any(report.kind == KILLED for report in told.values()))
        return list(told.values())

    reports = uninterrupted(run_tests(list(lab.test_files.values()), timed, seed, after=repeat))
    if again:
        many = f"{len(again)} tests were" if len(again) > 1 else "1 test was"
        remote.notes.append(f"{many} run again: their process was killed, perhaps from outside.")
    if remote.unavailable:  # raised inside a test, it would be the student's failure
        raise remote.unavailable
    return reports, any(doubts) or remote.swallowed


def run_timed(files: list[Path], student: Student, seed: int) -> list[TestReport]:
    """run_tests within the time of a submission. Raises KeyboardInterrupt after Ctrl-C."""
    timed = TimedStudent(student, time.monotonic() + SUBMISSION_SECONDS)
    return uninterrupted(run_tests(files, timed, seed))


def uninterrupted(reports: list[TestReport]) -> list[TestReport]:
    """Raises KeyboardInterrupt after Ctrl-C, which the runner reports as tests that failed."""
    if any(report.stopped for report in reports):
        raise KeyboardInterrupt
    return reports


def killed_tests(remote: RemoteStudent, reports: list[TestReport]) -> frozenset[str]:
    """Those whose sandbox was killed, perhaps from outside, as many as may still be repeated."""
    met = [report.test for report in reports if report.kind == KILLED]
    remote.swallowed |= remote.killed_calls > len(met)  # by a test that expects errors
    names, remote.repeats = met[: remote.repeats], max(0, remote.repeats - len(met))
    remote.killed_calls = 0
    return frozenset(names)


def repeated(
    file: Path, remote: RemoteStudent, timed: Student, seed: int, names: frozenset[str]
) -> list[TestReport]:
    """A second run of these tests of a file, with the same inputs, in a sandbox of its own.

    The calls of a test may depend on one another, so a whole test is repeated, and once: one that
    is killed again counts as failed by the student's code, and is doubtful.
    """
    remote.renew()
    reports = uninterrupted(run_tests([file], timed, seed, names=names))
    remote.killed_calls = 0
    return reports
