"""Writes results into nbgrader's gradebook, so that formgrader, feedback and export show them.

SQLite (gradebook.db in the course folder) by default, any database of SQLAlchemy's by URL.  Only
the process that collects the results calls this.  The scores of a submission are one commit.

    check cell of an exercise    auto_score = points of its tests
    written question, answered   no auto_score, needs_manual_grade: a person decides
    written question, unanswered auto_score = 0, comment "No response."
    ... the answer may be elsewhere  as if answered, the result's `look` says where
    submission rejected          auto_score = 0 everywhere, the reason as comment
A score that a person gave always stays.  If what it was given for has changed since, it is flagged
again (needs_manual_grade), which is nbgrader's own rule.
"""

import math
import warnings
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import nbformat
from nbgrader.api import Grade, Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import AssignLatePenalties, SaveCells
from sqlalchemy.exc import SAWarning

from autograder.grading.results import RECORDED, SCORE_EPS, Result
from autograder.intake.archive import EntryError, read_file
from autograder.intake.timestamps import MAX_TIMESTAMP_BYTES, parse_timestamp
from autograder.labs.manifest import LabError, LabSpec
from autograder.labs.source import build_source
from autograder.nbgrader.course import course_directory
from autograder.nbgrader.executed import (
    handed_in,
    not_graded,
    previous_hash,
    released_answers,
    write_executed,
)

NO_RESPONSE = "No response."  # nbgrader's words


class GradebookError(Exception):
    """A result does not fit the gradebook; nothing of it was written."""


def write_results(
    course_root: Path,
    lab: LabSpec,
    results: Iterable[Result],
    db_url: str | None = None,
) -> None:
    """Gradebook rows and executed notebook of every result, written as the results come.

    Faults of the grader and what is nobody's are left out; who handed in nothing becomes a student
    without a submission, which formgrader shows as missing and a later run replaces.  Raises
    GradebookError for a score outside 0..max or a cell that the gradebook does not know.
    """
    coursedir = course_directory(course_root, db_url)
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        ensure_assignment(gradebook, coursedir, lab)
        for result in results:
            if result.status == "missing":
                gradebook.update_or_create_student(result.student)
            if result.status in RECORDED:
                write_scores(gradebook, coursedir, lab, result)
                write_executed(coursedir, lab, result)


def ensure_assignment(gradebook: Gradebook, coursedir: CourseDirectory, lab: LabSpec) -> None:
    """The lab's rows as the release says, also in a gradebook that has never seen the lab."""
    course_root = Path(coursedir.root)
    source = course_root / coursedir.source_directory / lab.name
    if not source.is_dir() and (course_root / "solutions" / lab.name).is_dir():
        build_source(course_root, lab.name)  # formgrader lists only labs with a source
    gradebook.update_or_create_assignment(lab.name)
    release = nbformat.read(lab.release_notebook, as_version=4)
    try:
        SaveCells().preprocess(release, nbgrader_resources(coursedir, lab))
    except RuntimeError as error:
        raise LabError(f"{lab.name}: the gradebook holds another version of it: {error}") from None
    gradebook.db.expire_all()


def nbgrader_resources(coursedir: CourseDirectory, lab: LabSpec, student: str = ".") -> dict:
    """What nbgrader's preprocessors want to know."""
    named = {"student": student, "assignment": lab.name, "notebook": lab.notebook}
    return {"nbgrader": named | {"db_url": coursedir.db_url}}


def write_scores(
    gradebook: Gradebook, coursedir: CourseDirectory, lab: LabSpec, result: Result
) -> None:
    """All grades and comments of one submission, in one commit."""
    student = result.student
    gradebook.update_or_create_student(student)
    timestamp = read_timestamp(handed_in(coursedir, lab, student) / "timestamp.txt")
    with warnings.catch_warnings():  # nbgrader's way of making rows; harmless, but one per student
        warnings.simplefilter("ignore", SAWarning)
        gradebook.update_or_create_submission(lab.name, student, timestamp=timestamp)
    notebook = gradebook.find_submission_notebook(lab.notebook, lab.name, student)
    same = previous_hash(coursedir, lab, student) == result.submission_hash != ""
    try:
        empty = unanswered(lab, result)
        scores = cell_scores(lab, result, empty)
        if {grade.name for grade in notebook.grades} != scores.keys():
            raise GradebookError(f"{student}: results for {sorted(scores)} only")
        for grade in notebook.grades:
            set_score(grade, scores[grade.name], same)
        refused = not_graded(result.reason) if result.status == "rejected" else None
        for comment in notebook.comments:
            no_response = NO_RESPONSE if comment.name in empty else None
            comment.auto_comment = refused or no_response
        gradebook.db.commit()
    except BaseException:
        gradebook.db.rollback()
        raise
    penalties = AssignLatePenalties(config=coursedir.config)
    penalties.preprocess(nbformat.v4.new_notebook(), nbgrader_resources(coursedir, lab, student))
    gradebook.db.expire_all()


def cell_scores(lab: LabSpec, result: Result, empty: set[str]) -> dict[str, float | None]:
    """Score of every graded cell; None: a person has to give it."""
    points = {f"{part.exercise}-check": part.points for part in result.exercises}
    scores: dict[str, float | None] = {f"{name}-check": 0.0 for name in lab.exercises}
    if not points.keys() <= scores.keys():
        raise GradebookError(f"{result.student}: unknown exercises in {sorted(points)}")
    scores |= points
    return scores | {name: 0.0 if name in empty else None for name in lab.written}


def unanswered(lab: LabSpec, result: Result) -> set[str]:
    """Solution cells and written questions in which nothing was written, here or elsewhere."""
    given = result.answers
    return {
        name
        for name, stub in released_answers(lab).items()
        if given.get(name, stub).strip() in (stub.strip(), "") and name not in result.look
    }


def set_score(grade: Grade, score: float | None, same_submission: bool) -> None:
    """Sets the automatic score, beside one that a person may have given."""
    if score is not None and not (math.isfinite(score) and 0 <= score <= top(grade)):
        raise GradebookError(f"{grade.name}: {score} is outside 0..{grade.max_score:g}")
    changed = not (same_submission and grade.auto_score == score)
    grade.auto_score = score
    if grade.manual_score is None:
        grade.needs_manual_grade = score is None
    elif changed:
        grade.needs_manual_grade = True


def top(grade: Grade) -> float:
    return grade.max_score + SCORE_EPS


def read_timestamp(path: Path) -> datetime | None:
    """When it was handed in, by nbgrader's timestamp.txt; None if there is no sound one."""
    try:
        return parse_timestamp(read_file(path, MAX_TIMESTAMP_BYTES))[0]
    except EntryError:
        return None
