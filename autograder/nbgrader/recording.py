"""Records results as they come: gradebook rows, executed notebook and feedback page of each.

Whatever goes wrong with one student is told with that student, and the others are recorded.  What
stands there already is not written again, so recording a class twice changes nothing.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory

from autograder.errors import StorageError, file_trouble, files_told
from autograder.grading.results import RECORDED, Late, Result
from autograder.intake.discover import Rejected, Submission
from autograder.labs.manifest import LabSpec
from autograder.nbgrader.course import course_directory
from autograder.nbgrader.database import database_told, open_gradebook
from autograder.nbgrader.executed import write_executed
from autograder.nbgrader.gradebook import ensure_assignment, write_lateness, write_scores
from autograder.nbgrader.marking import write_marking_pages
from autograder.nbgrader.newest import recorded_before, time_of, what_it_replaces, why_it_stays
from autograder.nbgrader.pages import write_page
from autograder.nbgrader.people import record_name


class Recorded(NamedTuple):
    """A result, why it is not recorded ("" if it is), its lateness, and hand-ins graded so far."""

    result: Result
    trouble: str = ""
    late: Late | None = None
    hand_ins: int = 0
    stays: dict | None = None  # what is recorded and stays so in place of the result
    said: str = ""  # a sentence on a grade that stays, or that is lost


def record(
    course_root: Path,
    lab: LabSpec,
    submissions: Iterable[Submission | Rejected],
    results: Iterable[Result],
    *,
    db_url: str | None = None,
    feedback: bool = True,
    older: bool = False,
) -> Iterator[Recorded]:
    """Writes every result as it comes; the pages for marking when there are no more.

    A hand-in that is older than the recorded one changes nothing, unless `older` is set.
    Faults of the grader and what is nobody's are passed on; who handed in nothing becomes a student
    without a submission, which formgrader shows as missing and a later run replaces.  Raises
    StorageError where the gradebook or the course folder cannot be used at all.
    """
    coursedir = course_directory(course_root, db_url)
    by_student = {submission.student: submission for submission in submissions}
    with open_gradebook(coursedir) as gradebook:
        with files_told():
            ensure_assignment(gradebook, coursedir, lab)
        for result in results:
            if result.status in (*RECORDED, "missing"):
                submission = by_student[result.student]
                yield record_one(gradebook, coursedir, lab, submission, result, feedback, older)
            else:
                yield Recorded(result)
        with files_told(), database_told(coursedir):
            write_marking_pages(coursedir, gradebook, lab)


def record_one(
    gradebook: Gradebook,
    coursedir: CourseDirectory,
    lab: LabSpec,
    submission: Submission | Rejected,
    result: Result,
    feedback: bool,
    older: bool = False,
) -> Recorded:
    """Rows first: whatever is missing beside them is seen by the next run, and written then."""
    try:
        with database_told(coursedir):
            record_name(gradebook, result.student, submission.name)
            before = recorded_before(gradebook, coursedir, lab, result.student)
            missing = result.status == "missing"
            if missing and before is None:
                gradebook.update_or_create_student(result.student)
                return Recorded(result)
            told = why_it_stays(before, submission) if before and not older else ""
            if missing or told:
                late = write_lateness(
                    gradebook, coursedir, lab, result.student, time_of(before.get("sent"))
                )
                hand_ins = len(before.get("hand_ins") or ())
                return Recorded(result, "", late, hand_ins, before, told)
            when = getattr(submission, "when", None) or time_of(submission.sent)
            late = write_scores(gradebook, coursedir, lab, result, when)
            hand_ins = write_executed(coursedir, lab, submission, result, late)
            if feedback:
                write_page(coursedir, gradebook, lab, result.student)
    except StorageError as error:
        return Recorded(result, str(error))
    except OSError as error:
        return Recorded(result, file_trouble(error))
    except Exception as error:  # a bug of ours, or an input nobody thought of: one student's row
        return Recorded(result, f"{type(error).__name__}: {error}")
    said = what_it_replaces(before or {}, submission, result)
    return Recorded(result, late=late, hand_ins=hand_ins, said=said)
