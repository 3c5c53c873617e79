"""Writes the feedback page of everyone who handed in."""

from collections.abc import Iterable
from pathlib import Path

from nbgrader.converters import GenerateFeedback

from autograder.grading.results import RECORDED, Result
from autograder.intake.discover import Rejected, Submission
from autograder.labs.manifest import LabSpec
from autograder.nbgrader.course import course_directory


def write_feedback(
    course_root: Path,
    lab: LabSpec,
    submissions: Iterable[Submission | Rejected],
    results: Iterable[Result],
    db_url: str | None = None,
) -> None:
    """A page for everyone who handed in, rejected or not; none without a grade."""
    coursedir = course_directory(course_root, db_url)
    coursedir.assignment_id = lab.name
    recorded = {result.student for result in results if result.status in RECORDED}
    for student in sorted({row.student for row in submissions} & recorded):
        coursedir.student_id = student
        GenerateFeedback(coursedir=coursedir, config=coursedir.config).start()
