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
from datetime import datetime
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.api import Grade, Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import SaveCells
from nbgrader.utils import is_grade, is_locked, is_solution
from sqlalchemy.exc import SAWarning

from autograder.errors import StorageError
from autograder.grading.results import SCORE_EPS, Late, Result
from autograder.intake.archive import EntryError, read_file
from autograder.intake.timestamps import MAX_TIMESTAMP_BYTES, parse_timestamp
from autograder.labs.manifest import LabSpec
from autograder.labs.source import build_source
from autograder.nbgrader.database import database_told, one_commit
from autograder.nbgrader.executed import not_graded, released_answers, safe_text
from autograder.nbgrader.folders import handed_in, previous
from autograder.nbgrader.lateness import set_due, set_extension, take_off_for_lateness, terms_of

NO_RESPONSE = "No response."  # nbgrader's words


class GradebookError(Exception):
    """A result does not fit the gradebook; nothing of it was written."""


# ---- the lab ------------------------------------------------------------------------------------


def ensure_assignment(gradebook: Gradebook, coursedir: CourseDirectory, lab: LabSpec) -> None:
    """The lab's rows as the release says, also in a gradebook that has never seen the lab."""
    course_root = Path(coursedir.root)
    source = course_root / coursedir.source_directory / lab.name
    if not source.is_dir() and (course_root / "solutions" / lab.name).is_dir():
        build_source(course_root, lab.name)  # formgrader lists only labs with a source
    release = nbformat.read(lab.release_notebook, as_version=4)
    terms = terms_of(coursedir, lab)
    with database_told(coursedir):
        if known_cells(gradebook, lab) != released_cells(release):
            save_cells(gradebook, coursedir, lab, release)
        if set_due(gradebook.find_assignment(lab.name), terms):
            gradebook.db.commit()


def save_cells(
    gradebook: Gradebook, coursedir: CourseDirectory, lab: LabSpec, release: NotebookNode
) -> None:
    """The rows of the release. Raises StorageError if those of submissions are other ones."""
    gradebook.update_or_create_assignment(lab.name)
    try:
        SaveCells().preprocess(release, nbgrader_resources(coursedir, lab))
    except RuntimeError:
        raise StorageError(
            f"the gradebook of {coursedir.root} holds {lab.name} with other cells, and "
            "submissions of it: release the lab as it was, or move gradebook.db away"
        ) from None
    gradebook.db.expire_all()


def known_cells(gradebook: Gradebook, lab: LabSpec) -> dict[str, set]:
    """What the gradebook holds of the lab's cells; empty if it has never seen the lab."""
    try:
        notebook = gradebook.find_notebook(lab.notebook, lab.name)
    except MissingEntry:
        return {}
    return {
        "points": {(cell.name, cell.max_score) for cell in notebook.grade_cells},
        "solutions": {cell.name for cell in notebook.solution_cells},
        "sources": {(cell.name, cell.source) for cell in notebook.source_cells},
    }


def released_cells(release: NotebookNode) -> dict[str, set]:
    """The same of the released notebook."""
    graded = [cell for cell in release.cells if is_grade(cell)]
    marked = [cell for cell in release.cells if is_solution(cell) or is_locked(cell)]
    return {
        "points": {(name_of(cell), float(cell.metadata.nbgrader.points)) for cell in graded},
        "solutions": {name_of(cell) for cell in release.cells if is_solution(cell)},
        "sources": {(name_of(cell), cell.source) for cell in (*graded, *marked)},
    }


def name_of(cell: NotebookNode) -> str:
    return cell.metadata.nbgrader.grade_id


def nbgrader_resources(coursedir: CourseDirectory, lab: LabSpec) -> dict:
    """What nbgrader's preprocessors want to know."""
    named = {"student": ".", "assignment": lab.name, "notebook": lab.notebook}
    return {"nbgrader": named | {"db_url": coursedir.db_url}}


# ---- a submission -------------------------------------------------------------------------------


def write_scores(
    gradebook: Gradebook,
    coursedir: CourseDirectory,
    lab: LabSpec,
    result: Result,
    when: datetime | None = None,
) -> Late | None:
    """All grades and comments of one submission, in one commit; what was taken off as late.

    when: the course system says that it was handed in, if it does.  What stands there already is
    not written again.  Raises GradebookError for a score outside 0..max or a cell that the
    gradebook does not know, UsageError for a course.toml that cannot be read.
    """
    student = result.student
    empty = unanswered(lab, result)
    scores = cell_scores(lab, result, empty)
    before = previous(coursedir, lab, student).get("submission_hash")
    same = before == result.submission_hash != ""
    timestamp = read_timestamp(handed_in(coursedir, lab, student) / "timestamp.txt")
    terms = terms_of(coursedir, lab)
    with one_commit(gradebook):
        gradebook.update_or_create_student(student)
        with warnings.catch_warnings():  # nbgrader's way of making rows; one warning per student
            warnings.simplefilter("ignore", SAWarning)
            gradebook.update_or_create_submission(lab.name, student, timestamp=timestamp)
        notebook = gradebook.find_submission_notebook(lab.notebook, lab.name, student)
        if {grade.name for grade in notebook.grades} != scores.keys():
            raise GradebookError(f"{student}: results for {sorted(scores)} only")
        set_extension(notebook.assignment, terms)
        for grade in notebook.grades:
            set_score(grade, scores[grade.name], same)
        refused = not_graded(result.reason) if result.status == "rejected" else None
        for comment in notebook.comments:
            own = NO_RESPONSE if comment.name in empty else result.look.get(comment.name)
            comment.auto_comment = refused or (safe_text(own) if own else None)
        gradebook.db.flush()
        gradebook.db.expire_all()  # sums are the database's, from what was set
        return take_off_for_lateness(coursedir, notebook, terms, timestamp or when)


def write_lateness(
    gradebook: Gradebook,
    coursedir: CourseDirectory,
    lab: LabSpec,
    student: str,
    when: datetime | None,
) -> Late | None:
    """The penalty of a submission that is recorded already, by the dates that hold now."""
    timestamp = read_timestamp(handed_in(coursedir, lab, student) / "timestamp.txt")
    terms = terms_of(coursedir, lab)
    with one_commit(gradebook):
        notebook = gradebook.find_submission_notebook(lab.notebook, lab.name, student)
        set_extension(notebook.assignment, terms)
        gradebook.db.flush()
        return take_off_for_lateness(coursedir, notebook, terms, timestamp or when)


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
