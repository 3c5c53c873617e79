"""nbgrader with this course's folders, stubs, sandbox and feedback (used by nbgrader_config.py).

nbgrader's own `autograde` copies every file a student handed in, runs the notebook on the
instructor's machine, and believes what that kernel printed.  Its preprocessor lists can be
exchanged, but not the steps around them: they follow links, skip renamed notebooks and zips, and
end the batch at a damaged one.  So `configure` exchanges the one method behind both
`nbgrader autograde` and formgrader's button, and empties the lists, so that no way is left on
which nbgrader itself runs student code.
"""

import fnmatch
import sys
from pathlib import Path

from nbgrader.converters import Autograde, NbGraderException
from traitlets.config import Config

from autograder.errors import StorageError, UsageError
from autograder.grading.batch import cache_dir, grade_many
from autograder.intake.discover import IntakeError, discover
from autograder.labs.manifest import LabError, load_lab
from autograder.nbgrader.config import settings
from autograder.nbgrader.people import class_of, enrol
from autograder.nbgrader.recording import record
from autograder.own.which import configured_root, course_upwards, two_courses
from autograder.sandbox.launch import SandboxUnavailable

told: set[Path] = set()  # courses of which it was said that another one is acted on


def configure(config: Config) -> None:
    """Sets everything of nbgrader's that this course does differently."""
    settings(config)
    tell_of_two_courses()
    config.Autograde.sanitize_preprocessors = []
    config.Autograde.autograde_preprocessors = []
    Autograde.start = grade_in_sandbox


def tell_of_two_courses() -> None:
    """Says once, on stderr, that nbgrader acts on another course than the one it was called in."""
    here, elsewhere = course_upwards(Path.cwd()), configured_root()
    if here and elsewhere and here != elsewhere and here not in told:
        told.add(here)
        print(f"autograder: {two_courses(here, elsewhere)}: not on this one", file=sys.stderr)


def grade_in_sandbox(converter: Autograde) -> None:
    """Stands in for Autograde.start: the same grading, rows and files as `autograder grade`.

    Grades the students that --student names; --force grades again what is stored.  Whatever a
    student handed in is that student's row; only the grader's own faults end in an exception, after
    everyone else has been graded.
    """
    coursedir, faults = converter.coursedir, []
    root = Path(coursedir.root)

    try:
        lab = load_lab(coursedir.assignment_id, root)
        enrol(coursedir, class_of(root))
        rows = chosen_rows(coursedir, lab)
        results = grade_many(lab, rows, cache=cache_dir(root, lab), regrade=converter.force)
        options = {"db_url": coursedir.db_url, "feedback": False, "older": True}
        for row in record(root, lab, rows, results, **options):
            result, trouble = row.result, row.trouble
            said = f"{result.score:g} of {result.max_score:g} {result.reason} {trouble}"
            converter.log.info("%s: %s, %s", result.student, result.status, said)
            if result.status == "fault" or trouble:
                faults.append(f"{result.student}: {trouble or result.reason}")
    except (LabError, IntakeError, SandboxUnavailable, StorageError, UsageError) as error:
        converter.log.error("%s", error)
        raise NbGraderException(str(error)) from error
    if faults:
        converter.log.error("not graded or not recorded: %s", "; ".join(faults))
        raise NbGraderException("not graded or not recorded: " + "; ".join(faults))


def chosen_rows(coursedir, lab):
    """What the students chosen by nbgrader's options handed in."""
    excluded = set(filter(None, coursedir.student_id_exclude.split(",")))
    submitted = Path(coursedir.root) / coursedir.submitted_directory
    rows = [
        row
        for row in discover(submitted, lab)
        if fnmatch.fnmatchcase(row.student, coursedir.student_id) and row.student not in excluded
    ]
    if not rows:
        raise IntakeError(f"no submission of {lab.name} matches {coursedir.student_id!r}")
    return rows
