"""A gradebook in which four students stand, of whom one handed in nothing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "nbgrader"))
import nbcourse  # noqa: E402
from nbgrader.api import Gradebook  # noqa: E402

from autograder.intake.discover import Rejected  # noqa: E402


def record(root, *ids):
    """ids: of a student with all points, of one without ex1's, of a rejected and a missing one."""
    lab = nbcourse.load(root)
    right, partly, refused, missing = ids
    rows = [nbcourse.submission(lab, nbcourse.right(lab), one) for one in (right, partly)]
    made = [nbcourse.graded(lab, rows[0]), nbcourse.graded(lab, rows[1], ("test_scale_negative",))]
    row, result = nbcourse.rejected(lab, refused, "the file is empty")
    absent = Rejected(missing, lab.name, "nothing handed in", "Absent", "missing")
    nothing = nbcourse.changed(result, student=missing, status="missing")
    nbcourse.record(root, lab, [*made, result, nothing], [*rows, row, absent])
    return lab


def book(root):
    return Gradebook(f"sqlite:///{root}/gradebook.db", "efficient-llm")
