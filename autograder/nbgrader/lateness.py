"""How late a submission is and what that costs: by course.toml, else by nbgrader's own settings.

course.toml wins: what it says of a lab is written into the gradebook, where formgrader shows it.
Without a due date there, the one set in formgrader holds, and without points_per_day nbgrader's
LateSubmissionPlugin.
"""

from datetime import datetime
from pathlib import Path

from nbgrader.api import (
    Assignment,
    Gradebook,
    MissingEntry,
    SubmittedAssignment,
    SubmittedNotebook,
)
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import AssignLatePenalties

from autograder.errors import UsageError
from autograder.grading.results import Late
from autograder.intake.terms import FILE, Terms, read_terms, shown_time
from autograder.labs.manifest import LabSpec, lab_names


def terms_of(coursedir: CourseDirectory, lab: LabSpec) -> Terms:
    """Raises UsageError: course.toml holds what cannot be, or a lab that there is not."""
    root = Path(coursedir.root)
    terms = read_terms(root)
    unknown = sorted(terms.keys() - set(lab_names(root)))
    if unknown:  # a slip of the pen there would let a due date pass unseen
        raise UsageError(f"{root / FILE}: there is no lab {', '.join(unknown)}")
    return terms.get(lab.name, Terms())


def set_due(assignment: Assignment, terms: Terms) -> bool:
    """Puts the due date of course.toml into the gradebook; whether that changed it."""
    if terms.due is None or assignment.duedate == terms.due:
        return False
    assignment.duedate = terms.due
    return True


def clear_due(gradebook: Gradebook, lab: str, due: datetime) -> None:
    """Takes a due date of course.toml, and the extensions of it, out of the gradebook."""
    try:
        assignment = gradebook.find_assignment(lab)
    except MissingEntry:
        return
    if assignment.duedate == due:
        assignment.duedate = None
        for submission in assignment.submissions:
            submission.extension = None
        gradebook.db.commit()


def set_extension(submission: SubmittedAssignment, terms: Terms) -> None:
    if terms.due is not None:
        extended = terms.extensions.get(submission.student.id)
        submission.extension = extended - terms.due if extended else None


def take_off_for_lateness(
    coursedir: CourseDirectory, notebook: SubmittedNotebook, terms: Terms, when: datetime | None
) -> Late | None:
    """Writes the penalty; None if there is no due date, or the work was in time.

    when: it was handed in; None if nobody knows, so that nothing is taken off.
    """
    submission = notebook.assignment
    extended = submission.extension is not None
    due = submission.duedate if submission.assignment.duedate else None  # nbgrader adds the two
    seconds = max(0.0, (when - due).total_seconds()) if when and due else 0.0
    if terms.points_per_day:
        taken_off = terms.penalty(seconds, notebook.score) or None
    else:
        taken_off = nbgraders_penalty(coursedir, notebook, seconds) if seconds else None
    if notebook.late_submission_penalty != taken_off:
        notebook.late_submission_penalty = taken_off
    if not due or not (seconds or extended or when is None):
        return None
    dated = when is not None
    return Late(
        notebook.score, taken_off or 0.0, seconds, shown_time(due, terms.zone), extended, dated
    )


def nbgraders_penalty(
    coursedir: CourseDirectory, notebook: SubmittedNotebook, seconds: float
) -> float | None:
    """What nbgrader's preprocessor AssignLatePenalties does, inside our commit."""
    penalties, student = AssignLatePenalties(config=coursedir.config), notebook.student.id
    penalties.init_plugin()
    plugin = penalties.plugin_inst
    taken_off = plugin.late_submission_penalty(student, notebook.score, seconds)
    return None if taken_off is None else penalties._check_late_penalty(notebook, taken_off)
