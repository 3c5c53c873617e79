"""An exercise that was solved is not called "not attempted" because it calls one that was not."""

import pytest
from toylab import NAME, RIGHT1, STUB1, answered, make_course

from autograder.grading.results import NOT_ATTEMPTED
from autograder.grading.stubs import attempted, met_stub, own_code
from autograder.grading.verdict import grade_one
from autograder.intake.discover import Submission
from autograder.intake.notebook import notebook_cells, notebook_digest
from autograder.labs.manifest import load_lab

CALLS = "def clip(numbers, lo, hi):\n    return [max(lo, min(n, hi)) for n in scale(numbers, 1)]"
MET = "it called a function of exercise 1, which was left as it was given out"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return load_lab(NAME, make_course(tmp_path_factory.mktemp("course")))


def messages(lab, **answers):
    cells = notebook_cells(answered(**answers))
    row = Submission("alice", NAME, "toy.ipynb", cells, notebook_digest(cells))
    result = grade_one(lab, row, unsafe=True)
    return {part.exercise: {test.message for test in part.tests} for part in result.exercises}


def test_a_call_into_another_exercises_stub_is_told_as_that(lab):
    assert messages(lab, ex1=STUB1, ex2=CALLS) == {"ex1": {NOT_ATTEMPTED}, "ex2": {MET}}


def test_with_the_other_solved_there_is_nothing_to_tell(lab):
    assert messages(lab, ex1=RIGHT1, ex2=CALLS) == {"ex1": {""}, "ex2": {""}}


def test_through_a_third_exercise():
    stub = 'def {}():\n    raise NotImplementedError("Exercise {}")'.format
    code = {"ex1": stub("a", 1), "ex2": "def b():\n    a()", "ex3": "def c():\n    b()"}
    assert met_stub("ex3", code) == MET
    code |= {"ex2": stub("b", 2), "ex3": "def c():\n    a(b())"}
    assert met_stub("ex3", code).startswith("it called a function of exercise 1 or exercise 2,")


@pytest.mark.parametrize(
    "code", ["", 'def f():\n    raise NotImplementedError( "Exercise 2")\n\ndef g():\n    return 1']
)
def test_what_is_not_there_or_in_part_is_not_attempted(code):
    assert not attempted(code)


def test_an_error_that_the_student_raises_is_no_other_exercises():
    assert met_stub("ex1", {"ex1": "def f():\n    raise NotImplementedError"}) == NOT_ATTEMPTED


def test_cells_of_an_exercise_go_together():
    assert own_code("ex2", {"ex2": "a", "ex2-b": "b", "ex21": "c", "w1": "d"}) == "a\n\nb"
