"""Grades a class: results as they come, kept on disk under what decided them.

A stored result is used again as long as submission, suite, efflib, grader and kind of sandbox are
the same.  So an interrupted run goes on where it stopped, and a regrade after a change of the suite
touches only what the change can touch.  Faults of the grader and doubtful results are never stored.
What is doubtful is graded again at the end, when nothing else runs: the same end is beyond doubt.
"""

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from itertools import chain
from pathlib import Path

import msgspec

from autograder.errors import files_told
from autograder.grading.elsewhere import run_elsewhere
from autograder.grading.job import grade_job
from autograder.grading.pool import Outcome, cores, run_jobs
from autograder.grading.ready import ready_to_grade
from autograder.grading.results import Result, decode_result, encode, settled
from autograder.grading.ungraded import fault, rejected, sandbox_name
from autograder.intake.discover import Rejected, Submission
from autograder.labs.hashing import grader_hash
from autograder.labs.manifest import LabSpec
from autograder.sandbox.launch import SandboxUnavailable

KEPT = 5  # results of a student, the newest; older ones are deleted
JOB_SECONDS = 3600.0  # a submission stops much earlier (verdict.py): this ends a grader that hangs


def cache_dir(course_root: Path, lab: LabSpec) -> Path:
    return course_root / "build" / "results" / lab.name


def grade_many(
    lab: LabSpec,
    submissions: Iterable[Submission | Rejected],
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    cache: Path | None = None,
    regrade: bool = False,
    seed: int | None = None,
    unsafe: bool = False,
) -> Iterator[Result]:
    """One Result per submission, in the order in which they are ready.

    jobs: local worker processes (default: one per core); executor: use this one instead, for
    example on_dask.OnDask(client); cache: folder of stored results, None for no storing;
    regrade: do not read stored results.  Raises SandboxUnavailable: nothing is graded without.
    """
    todo, ready = [], []
    for submission in submissions:
        if isinstance(submission, Rejected):
            ready.append(rejected(lab, submission))
            continue
        path = stored_at(cache, lab, submission, seed, unsafe)
        stored = None if regrade or path is None else load(path)
        if stored is not None:
            make_newest(path)
            ready.append(stored)
        else:
            todo.append(without_outputs(submission))
    others = len(todo) > 1
    first = run(lab, todo, jobs, executor, seed, unsafe, shared=others)  # while others are recorded
    alone = functools.partial(run, lab, jobs=1, executor=executor, seed=seed, unsafe=unsafe)
    full = functools.partial(run, lab, jobs=jobs, executor=executor, seed=seed, unsafe=unsafe)
    where = functools.partial(stored_at, cache, lab, seed=seed, unsafe=unsafe)
    return results(lab, ready, first, full, alone, where)


def results(
    lab: LabSpec,
    ready: list[Result],
    first: Iterator,
    full: Callable,
    alone: Callable,
    where: Callable,
) -> Iterator[Result]:
    """What grade_many yields.

    full: grades submissions again with all their time; alone: and when no other is graded.
    """
    yield from ready
    doubtful, behind = {}, []
    for submission, outcome in chain(first, again(full, behind)):
        result = outcome_result(lab, submission, outcome)
        if result.cut_off:
            behind.append(submission)
        elif result.doubtful:
            doubtful[submission.student] = submission, result
        else:
            yield kept(where(submission), result)
    for submission, outcome in alone([submission for submission, _ in doubtful.values()]):
        _, before = doubtful[submission.student]
        result = settled(before, outcome_result(lab, submission, outcome))
        yield kept(where(submission), result)


def again(grade: Callable, submissions: list[Submission]) -> Iterator:
    """Grades what the list holds when the first is asked for."""
    yield from grade(submissions)


def kept(path: Path | None, result: Result) -> Result:
    """The result, which is stored if it is a grade beyond doubt."""
    if path is not None and result.status == "graded" and not result.doubtful:
        store(path, result)
    return result


def without_outputs(submission: Submission) -> Submission:
    """What a worker needs of a submission: pictures are for people, and large."""
    return replace(submission, cells=tuple(replace(c, outputs=()) for c in submission.cells))


def run(
    lab: LabSpec,
    todo: list[Submission],
    jobs: int | None,
    executor: Executor | None,
    seed: int | None,
    unsafe: bool,
    shared: bool = False,
) -> Iterator[tuple[Submission, Outcome]]:
    """shared: one that takes long must not keep a worker from the others (see SHARE_SECONDS)."""
    job = functools.partial(grade_job, lab, seed=seed, unsafe=unsafe, shared=shared)
    get_ready = functools.partial(ready_to_grade, lab, unsafe)
    if executor is not None:
        return run_elsewhere(executor, job, todo, JOB_SECONDS, get_ready)
    workers = max(1, min(jobs or cores(), len(todo)))
    return run_jobs(job, todo, workers, JOB_SECONDS, get_ready)


def outcome_result(lab: LabSpec, submission: Submission, outcome: Outcome) -> Result:
    if isinstance(outcome, SandboxUnavailable):
        raise outcome
    if isinstance(outcome, Exception):
        return fault(lab, submission, f"{type(outcome).__name__}: {outcome}")
    return decode_result(outcome)


# ---- stored results -----------------------------------------------------------------------------


def stored_at(
    cache: Path | None, lab: LabSpec, submission: Submission, seed: int | None, unsafe: bool
) -> Path | None:
    """<cache>/<student>/<hash of everything that decides the result>.json"""
    if cache is None:
        return None
    decisive = [submission.digest, submission.notes, lab.suite_hash, lab.efflib_hash]
    decisive += [grader_hash(), sandbox_name(unsafe), seed]
    name = hashlib.sha256(json.dumps(decisive).encode()).hexdigest()
    return cache / submission.student / f"{name}.json"


def make_newest(path: Path) -> None:
    """A stored result that is used again is the one that the next is compared with."""
    if newest_first(path.parent)[0] != path:
        with files_told(path):
            os.utime(path)


def load(path: Path) -> Result | None:
    """A stored result; one that cannot be read is as good as none."""
    try:
        return decode_result(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def store(path: Path, result: Result) -> None:
    """Writes all of it or nothing, also when interrupted. Raises StorageError."""
    partial = path.with_suffix(f".{os.getpid()}.part")
    with files_told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob("*.part"):  # of a run that was killed
            if not Path("/proc", left.suffixes[-2][1:]).exists():
                left.unlink(missing_ok=True)
        try:
            partial.write_bytes(encode(result))
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        for old in newest_first(path.parent)[KEPT:]:
            old.unlink(missing_ok=True)


def stored_result(cache: Path, student: str, digest: str) -> Result | None:
    """The newest stored result of one hand-in; what comes next is compared with it."""
    for path in newest_first(cache / student):
        result = load(path)
        if result is not None and result.submission_hash == digest:
            make_newest(path)
            return result
    return None


def newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"), key=lambda path: -path.stat().st_mtime_ns)


def previous_results(
    cache: Path, submissions: Iterable[Submission | Rejected]
) -> dict[str, Result]:
    """The newest stored result of each student: what a new one is compared with."""
    found = {}
    for submission in submissions:
        if not isinstance(submission, Submission):
            continue
        newest = next(filter(None, map(load, newest_first(cache / submission.student))), None)
        if newest is not None:
            found[submission.student] = newest
    return found
