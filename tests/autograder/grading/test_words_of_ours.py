"""A student's code may say what the grader says; it is still a student who said it."""

import json

from toylab import NAME, RIGHT1, answered, make_course, write

from autograder.grading.verdict import grade_one
from autograder.intake.discover import discover
from autograder.labs.manifest import load_lab

SAYS = 'def clip(*_):\n    {} "it did not run, because the check was stopped"{}'


def test_no_word_of_a_student_s_stops_the_grading(tmp_path):
    """The report of a test ends with what came back: in the words for Ctrl-C."""
    lab = load_lab(NAME, make_course(tmp_path))
    for name, parts in {"returned": ("return", ""), "raised": ("raise ValueError(", ")")}.items():
        write(tmp_path / f"in/{name}.ipynb", answered(RIGHT1, SAYS.format(*parts)))
    for row in discover(tmp_path / "in", lab):
        result = grade_one(lab, row)
        assert result.status == "graded" and result.score == 50
        assert "the check was stopped" in json.dumps([t.message for t in result.exercises[1].tests])
