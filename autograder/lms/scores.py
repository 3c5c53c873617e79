"""The points of a class as the gradebook has them: with those given by hand, less penalties."""

from typing import NamedTuple

from nbgrader.api import Gradebook, MissingEntry

from autograder.errors import UsageError
from autograder.labs.manifest import LabSpec


class Score(NamedTuple):
    """Of one student's submission."""

    points: float  # what remains
    taken_off: float  # for lateness
    awaits: bool  # a person has not yet given all points


class Scores(NamedTuple):
    top: float
    by_student: dict[str, Score]  # of those with a submission
    names: dict[str, str]  # of everyone in the gradebook, "" where it knows none


def read_scores(gradebook: Gradebook, lab: LabSpec) -> Scores:
    """Raises UsageError if nothing of the lab was graded."""
    try:
        top = gradebook.find_assignment(lab.name).max_score
    except MissingEntry:
        raise UsageError(f"{lab.name} is not in the gradebook: grade it first") from None
    found = {}
    for submission in gradebook.assignment_submissions(lab.name):
        taken_off = submission.late_submission_penalty or 0.0
        remains = max(0.0, submission.score - taken_off)
        found[submission.student.id] = Score(remains, taken_off, submission.needs_manual_grade)
    if not found:
        raise UsageError(f"the gradebook holds no submission of {lab.name}: grade it first")
    people = {one.id: f"{one.first_name or ''} {one.last_name or ''}" for one in gradebook.students}
    return Scores(top, found, {student: name.strip() for student, name in people.items()})
