"""Of a student's hand-ins, the newest is recorded, in whatever order downloads are graded.

Which is newer is known where both are dated in the same way: by Canvas's numbers of uploads,
attempts, or times.  Where it is not known, what was graded last holds, and a sentence says so.
"""

from datetime import datetime

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory

from autograder.grading.results import Result
from autograder.intake.discover import Rejected, Submission
from autograder.intake.lms import Stamp
from autograder.labs.manifest import LabSpec
from autograder.nbgrader.folders import previous

ORDER = "which of the two is newer is not known here: if this is it not, grade the other once more"


def recorded_before(
    gradebook: Gradebook, coursedir: CourseDirectory, lab: LabSpec, student: str
) -> dict | None:
    """What is recorded of a student (see executed.about); None if nothing of the lab is."""
    try:
        gradebook.find_submission(lab.name, student)
    except MissingEntry:
        return None
    return previous(coursedir, lab, student)


def dumped(sent: Stamp) -> list | None:
    """A date as JSON has it: ["upload", 678904], ["time", "2026-10-01T21:59:00.000000"]."""
    if sent is None:
        return None
    kind, value = sent
    return [
        kind,
        value.isoformat(timespec="microseconds") if isinstance(value, datetime) else value,
    ]


def dates(before: dict, row: Submission | Rejected) -> tuple | None:
    """(recorded, handed in) if they can be compared, else None."""
    old, new = before.get("sent"), dumped(row.sent)
    return (old[1], new[1]) if old and new and old[0] == new[0] else None


def time_of(sent: Stamp | list) -> datetime | None:
    """The time in UTC, if it is one; also of what `dumped` made of it."""
    kind, value = sent or ("", "")
    if kind != "time":
        return None
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def why_it_stays(before: dict, row: Submission | Rejected) -> str:
    """A sentence if what is recorded is newer than this hand-in; else ""."""
    both = dates(before, row)
    if both is None or both[1] >= both[0]:
        return ""
    recorded, this = (str(value).removesuffix(".000000") for value in both)
    points = f"{before.get('score', 0):g} of {before.get('max_score', 0):g} points"
    return (
        f"{row.student}: a newer hand-in is graded ({recorded}; this one is {this}): its {points} "
        "stay (--older grades this one all the same)"
    )


def what_it_replaces(before: dict, row: Submission | Rejected, result: Result) -> str:
    """A sentence on a grade that is lost, or goes back to an earlier one; else ""."""
    unknown = "" if dates(before, row) else f"; {ORDER}"
    if result.status == "rejected" and before.get("status") == "graded":
        points = f"{before.get('score', 0):g} -> 0 of {result.max_score:g} points"
        return f"{row.student}: {points}, because of another hand-in ({result.reason}){unknown}"
    if unknown and result.submission_hash in (before.get("hand_ins") or ())[:-1]:
        if result.submission_hash != before["hand_ins"][-1]:
            return f"{row.student}: an earlier hand-in takes the place of a later one{unknown}"
    return ""
