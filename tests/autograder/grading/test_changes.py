"""A regrade says what it changed, test by test, and what could have changed it."""

import msgspec
import pytest

from autograder.grading.changes import differences
from autograder.grading.results import ExerciseResult, Result, TestResult


def one_test(name, passed, points=20.0):
    return TestResult(
        exercise="ex1", test=name, title=name, kind="hidden", invariant="", cause="",
        outcome="passed" if passed else "failed", max_points=points,
        points=points if passed else 0.0,
    )  # fmt: skip


def result(*tests, **changes):
    score = sum(test.points for test in tests)
    part = ExerciseResult(exercise="ex1", title="", points=score, max_points=90, tests=tests)
    hashes = {name: "same" for name in ("submission_hash", "suite_hash", "grader_hash")}
    told = hashes | {"score": score} | changes
    return Result(student="ada", lab="x", status="graded", max_score=90, exercises=(part,), **told)


def test_the_same_again_is_no_difference():
    first = result(one_test("a", True), started="then", seconds=1.0)
    assert differences(first, msgspec.structs.replace(first, started="now", seconds=2.0)) == []
    other = msgspec.structs.replace(first, suite_hash="other")
    assert differences(first, other) == [], "another suite that changes no test is no news"


def test_tests_that_changed_are_named_with_their_points():
    before = result(one_test("a", True), one_test("b", True, 30.0), one_test("gone", False))
    after = result(
        one_test("a", True), one_test("b", False, 25.0), one_test("new", True, 5.0),
        suite_hash="other",
    )  # fmt: skip
    assert differences(before, after) == [
        "ada: 50 -> 25 of 90 points (another suite)",
        "  ex1 hidden b: passed, 30 of 30 -> failed, 0 of 25",
        "  ex1 hidden gone: failed, 0 of 20 -> no such test",
        "  ex1 hidden new: no such test -> passed, 5 of 5",
    ]


REASONS = {
    "submission_hash": "another submission",
    "suite_hash": "another suite",
    "efflib_hash": "another efflib",
    "grader_hash": "another grader",
    "seed": "another seed",
    "sandbox": "another sandbox",
}


@pytest.mark.parametrize("name", REASONS)
def test_what_could_have_changed_it_is_told(name):
    value = 7 if name == "seed" else "other"
    lines = differences(result(one_test("a", True)), result(one_test("a", False), **{name: value}))
    assert lines[0] == f"ada: 20 -> 0 of 90 points ({REASONS[name]})"


def test_a_difference_that_nothing_explains_is_called_so():
    [first, _] = differences(result(one_test("a", True)), result(one_test("a", False)))
    assert "not reproducible" in first
