"""Writes a student's feedback page: the one that `nbgrader generate_feedback` makes, only faster.

The executed notebook is rendered by the same exporter's `page`, with the scores of an open
gradebook.  A page that is made from the same already is left as it is.
"""

import re
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory

from autograder.labs.manifest import LabSpec
from autograder.nbgrader.feedback import add_grades, made_from, page
from autograder.nbgrader.folders import executed_path, page_path, to_hand_on, write_file

MADE_FROM = re.compile(rb'<meta name="made-from" content="([0-9a-f]{64})">')
HEAD_BYTES = 1_000  # of a page, in which it says what it is made from


def write_page(
    coursedir: CourseDirectory, gradebook: Gradebook, lab: LabSpec, student: str
) -> None:
    """feedback/<student>/<lab>/, from the executed notebook and the gradebook as they are now."""
    source, target = (where(coursedir, lab, student) for where in (executed_path, page_path))
    nb = nbformat.v4.reads(source.read_text(encoding="utf-8"))
    notebook = gradebook.find_submission_notebook(lab.notebook, lab.name, student)
    grading = add_grades(nb, notebook)
    if said_made_from(target) != made_from(nb, grading):
        write_file(target, page(nb, grading).encode())
    for name, content in to_hand_on(source.parent).items():
        write_file(target.parent / name, content)


def said_made_from(path: Path) -> str | None:
    """The hash in the head of a page; None if there is no page of ours."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        found = MADE_FROM.search(file.read(HEAD_BYTES))
    return found[1].decode() if found else None
