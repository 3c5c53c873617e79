"""Running test files: only `passed` counts, whatever a test or its surroundings do."""

import textwrap

import pytest

from efflib.lab.runner import collect, run_tests
from efflib.lab.student import LocalStudent

HEAD = """
import pytest, torch
from efflib.lab import exercise, expect_close
def about(ex="ex1", points=2):
    return exercise(ex, points=points, invariant="the rule", cause="the cause")
"""


@pytest.fixture
def write(tmp_path):
    def make(body: str, name: str = "test_public.py"):
        path = tmp_path / name
        path.write_text(HEAD + textwrap.dedent(body))
        return path

    return make


def outcomes(reports):
    return {r.test: r.outcome for r in reports}


def student(**functions):
    return LocalStudent(functions)


def test_only_passed_is_passed(write):
    file = write("""
        @about()
        def test_right(student, rng): assert student.one() == 1
        @about()
        def test_wrong(student, rng): assert student.one() == 2, "one() returned 1"
        @about()
        def test_skipped(student, rng): pytest.skip("no")
        @about()
        def test_expected_failure(student, rng): pytest.xfail("no")
        @about()
        def test_leaves(student, rng): raise SystemExit(0)
        @about()
        def test_last(student, rng): assert student.one() == 1
        def test_undeclared(): pass
    """)
    reports = run_tests([file], student(one=lambda: 1), seed=0)
    assert outcomes(reports) == {
        "test_right": "passed",
        "test_wrong": "failed",
        "test_skipped": "not verified",
        "test_expected_failure": "not verified",
        "test_leaves": "failed",
        "test_last": "passed",
    }
    assert next(r for r in reports if r.test == "test_wrong").observed == "one() returned 1"


def test_a_test_that_stops_the_run_leaves_the_rest_failed(write):
    file = write("""
        @about()
        def test_first(student, rng): assert student.one() == 1
        @about()
        def test_exit(student, rng): pytest.exit("stop", returncode=0)
        @about()
        def test_never(student, rng): pass
    """)
    reports = run_tests([file], student(one=lambda: 1), seed=0)
    assert outcomes(reports)["test_first"] == "passed"
    assert outcomes(reports)["test_never"] == "failed"


def test_surroundings_do_not_matter(write, tmp_path, monkeypatch):
    file = write("""
        @about()
        def test_wrong(student, rng): assert False, "wrong"
    """)
    (tmp_path / "conftest.py").write_text("import pytest\ndef pytest_runtest_call(item): pass\n1/0")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    assert outcomes(run_tests([file], student(), seed=0)) == {"test_wrong": "failed"}


def test_runs_do_not_influence_each_other(write):
    file = write("""
        @about()
        def test_one(student, rng): assert student.one() == 1
    """)
    for value, outcome in ((1, "passed"), (2, "failed"), (1, "passed")):
        reports = run_tests([file], student(one=lambda value=value: value), seed=0)
        assert outcomes(reports) == {"test_one": outcome}


def test_one_exercise_only_and_collecting(write):
    file = write("""
        @about("ex1", 2)
        def test_a(student, rng): pass
        @about("ex2", 3)
        def test_b(student, rng): pass
    """)
    assert [r.test for r in run_tests([file], student(), seed=0, only="ex2")] == ["test_b"]
    declared = collect([file])
    assert [(r.exercise, r.points, r.outcome) for r in declared] == [
        ("ex1", 2, "failed"),
        ("ex2", 3, "failed"),
    ]
    assert declared[0].title == "a" and declared[0].invariant == "the rule"


def test_two_files_may_hold_tests_of_the_same_name(write):
    body = """
        @about()
        def test_a(student, rng): assert student.one() == 1
    """
    files = [write(body), write(body, "test_hidden.py")]
    reports = run_tests(files, student(one=lambda: 1), seed=0)
    assert [(r.file, r.outcome) for r in reports] == [
        ("test_public.py", "passed"),
        ("test_hidden.py", "passed"),
    ]


def test_numbers_follow_seed_and_test_name(write):
    file = write("""
        @about()
        def test_a(student, rng): student.see(torch.rand((), generator=rng).item())
        @about()
        def test_b(student, rng): student.see(torch.rand((), generator=rng).item())
    """)
    seen = []
    for seed in (0, 0, 1):
        run_tests([file], student(see=seen.append), seed=seed)
    assert seen[:2] == seen[2:4] and len(set(seen)) == 4


def test_a_broken_test_file_is_the_courses_fault(write, tmp_path):
    with pytest.raises(RuntimeError, match="cannot be read"):
        run_tests([write("import no_such_module")], student(), seed=0)
    with pytest.raises(FileNotFoundError, match="no_file"):
        run_tests([tmp_path / "no_file.py"], student(), seed=0)


def test_the_students_exception_is_named(write):
    file = write("""
        @about()
        def test_a(student, rng): student.f()
        @about()
        def test_b(student, rng): student.missing()
    """)

    def f():
        raise NotImplementedError("Exercise 1")

    a, b = run_tests([file], student(f=f), seed=0)
    assert a.kind == "NotImplementedError"
    assert b.kind == "Undefined" and b.observed == "missing is not defined"
