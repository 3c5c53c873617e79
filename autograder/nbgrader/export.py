"""`nbgrader export`: names that no spreadsheet takes for a formula, commas that part nothing.

The columns are those of nbgrader's own exporter, which writes names as they are.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

from nbgrader.api import Assignment, Gradebook, MissingEntry, Student
from nbgrader.plugins import ExportPlugin

from autograder.intake.names import inert

COLUMNS = (
    "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email",
    "raw_score", "late_submission_penalty", "score", "max_score",
)  # fmt: skip
DEFAULT = "grades.csv"


class InertCsv(ExportPlugin):
    """A row for each student and assignment; who handed in nothing has 0 points."""

    def export(self, gradebook: Gradebook) -> None:
        path = Path(self.to or DEFAULT)
        self.log.info("Exporting grades to %s", path)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for row in self.rows(gradebook):
                writer.writerow(inert(str(row[name] or "")) for name in COLUMNS)

    def rows(self, gradebook: Gradebook) -> Iterator[dict]:
        """Of the assignments and students that the command line names (default: all)."""
        labs, students = set(map(str, self.assignment)), set(map(str, self.student))
        for lab in gradebook.assignments:
            for one in gradebook.students:
                if (not labs or lab.name in labs) and (not students or one.id in students):
                    yield described(lab, one) | scores(gradebook, lab, one)


def described(lab: Assignment, one: Student) -> dict:
    return {
        "assignment": lab.name,
        "duedate": lab.duedate,
        "student_id": one.id,
        "last_name": one.last_name,
        "first_name": one.first_name,
        "email": one.email,
        "max_score": str(lab.max_score),
    }


def scores(gradebook: Gradebook, lab: Assignment, one: Student) -> dict:
    try:
        submission = gradebook.find_submission(lab.name, one.id)
    except MissingEntry:
        raw, penalty, when = 0.0, 0.0, ""
    else:
        raw, when = submission.score, submission.timestamp
        penalty = submission.late_submission_penalty
    return {
        "timestamp": when,
        "raw_score": str(raw),
        "late_submission_penalty": str(penalty),
        "score": str(max(0.0, raw - penalty)),
    }
