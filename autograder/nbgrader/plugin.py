"""nbgrader with this course's folders, stubs, sandbox and feedback (used by nbgrader_config.py).

nbgrader's own `autograde` copies every file a student handed in, runs the notebook on the
instructor's machine, and believes what that kernel printed.  Its preprocessor lists can be
exchanged, but not the steps around them: they follow links, skip renamed notebooks and zips, and
end the batch at a damaged one.  So `configure` exchanges the one method behind both
`nbgrader autograde` and formgrader's button, and empties the lists, so that no way is left on
which nbgrader itself runs student code.
"""

import fnmatch
from pathlib import Path

from nbgrader.converters import Autograde, NbGraderException
from traitlets.config import Config

from autograder.grading.batch import cache_dir, grade_many
from autograder.intake.discover import IntakeError, discover
from autograder.labs.manifest import LabError, load_lab
from autograder.nbgrader.config import settings
from autograder.nbgrader.gradebook import write_results
from autograder.sandbox.launch import SandboxUnavailable


def configure(config: Config) -> None:
    """Sets everything of nbgrader's that this course does differently."""
    settings(config)
    config.Autograde.sanitize_preprocessors = []
    config.Autograde.autograde_preprocessors = []
    Autograde.start = grade_in_sandbox


def grade_in_sandbox(converter: Autograde) -> None:
    """Stands in for Autograde.start: the same grading, rows and files as `autograder grade`.

    Grades the students that --student names; --force grades again what is stored.  Whatever a
    student handed in is that student's row; only the grader's own faults end in an exception, after
    everyone else has been graded.
    """
    coursedir, faults = converter.coursedir, []
    root = Path(coursedir.root)

    def logged(results):
        for result in results:
            said = f"{result.score:g} of {result.max_score:g} {result.reason}"
            converter.log.info("%s: %s, %s", result.student, result.status, said)
            faults.extend([f"{result.student}: {result.reason}"] * (result.status == "fault"))
            yield result

    try:
        lab = load_lab(coursedir.assignment_id, root)
        rows = chosen_rows(coursedir, lab)
        results = grade_many(lab, rows, cache=cache_dir(root, lab), regrade=converter.force)
        write_results(root, lab, logged(results), db_url=coursedir.db_url)
    except (LabError, IntakeError, SandboxUnavailable) as error:
        converter.log.error("%s", error)
        raise NbGraderException(str(error)) from error
    if faults:
        converter.log.error("the grader failed: %s", "; ".join(faults))
        raise NbGraderException("not graded: " + "; ".join(faults))


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
