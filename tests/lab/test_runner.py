"""Running test files: only `passed` counts, whatever a test or its surroundings do."""

import os
import random
import sys
import textwrap

import pytest
import torch

from efflib.lab.runner import TestFileError, collect, run_tests
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
    with pytest.raises(TestFileError, match="no_such_module"):
        run_tests([write("import no_such_module")], student(), seed=0)
    with pytest.raises(TestFileError, match="test_undeclared has no @exercise"):
        collect([write("def test_undeclared(): pass")])
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


def test_a_test_with_several_cases_is_as_good_as_its_worst(write):
    file = write("""
        @pytest.mark.parametrize("v", [1, 2, 1])
        @about()
        def test_cases(student, rng, v): assert student.one() == v, f"not {v}"
        @pytest.mark.parametrize("v", [1, 1])
        @about()
        def test_all(student, rng, v): assert student.one() == v
        @pytest.mark.parametrize("v", [1, 2])
        @about()
        def test_half(student, rng, v):
            if v == 2: pytest.skip("not here")
    """)
    cases, right, half = run_tests([file], student(one=lambda: 1), seed=0)
    assert (cases.outcome, cases.observed) == ("failed", "not 2")
    assert (right.outcome, half.outcome) == ("passed", "not verified")
    assert [r.test for r in collect([file])] == ["test_cases", "test_all", "test_half"]


def test_faults_around_a_test_count(write):
    file = write("""
        @pytest.fixture
        def breaks(): raise OSError("no disk")
        @pytest.fixture
        def breaks_late():
            yield
            assert False, "left open"
        @about()
        def test_setup(student, rng, breaks): pass
        @about()
        def test_teardown(student, rng, breaks_late): pass
        @pytest.mark.xfail
        @about()
        def test_unexpectedly_right(student, rng): pass
        @pytest.mark.skip
        @about()
        def test_marked(student, rng): pass
    """)
    assert outcomes(run_tests([file], student(), seed=0)) == {
        "test_setup": "failed",
        "test_teardown": "failed",
        "test_unexpectedly_right": "not verified",
        "test_marked": "not verified",
    }


OBSERVED = {
    "student.none().shape": "could not go on with what it got: AttributeError: 'NoneType'",
    "assert student.one() == 2": "this does not hold: ",
    "student.array()": "numpy.ndarray is not a plain value: return a torch.Tensor",
    "student.ask()": "your code raised EOFError",
    "student.leave()": "your code raised SystemExit",
    "student.skip()": "your code raised Skipped",
    "student.undefined()": "undefined is not defined",
    "pytest.raises(ValueError, student.one)": "nothing was raised where ValueError was expected",
}


@pytest.mark.parametrize("line", OBSERVED)
def test_what_was_observed_is_put_into_words(write, line):
    file = write(f"""
        @about()
        def test_a(student, rng):
            {line}
    """)
    functions = {
        "none": lambda: None,
        "one": lambda: 1,
        "array": lambda: torch.ones(2).numpy(),
        "ask": lambda: input("?"),
        "leave": lambda: sys.exit(0),
        "skip": lambda: pytest.skip("no"),
    }
    [report] = run_tests([file], student(**functions), seed=0)
    assert report.outcome == "failed" and OBSERVED[line] in report.observed


def test_stopping_ends_the_run_and_nothing_counts_that_did_not_run(write):
    body = """
        @about()
        def test_first(student, rng): pass
        @pytest.mark.parametrize("v", [0, 1])
        @about()
        def test_half(student, rng, v):
            if v: student.stop()
        @about()
        def test_last(student, rng): pass
    """
    later = """
        @about()
        def test_later(student, rng): pass
    """
    files = [write(body), write(later, "test_hidden.py")]

    def stop():
        raise KeyboardInterrupt

    reports = run_tests(files, student(stop=stop), seed=0)
    assert outcomes(reports) == {
        "test_first": "passed",
        "test_half": "failed",
        "test_last": "failed",
        "test_later": "failed",
    }
    assert "it was running when" in reports[1].observed
    assert "it did not run" in reports[2].observed


def test_a_file_of_the_same_name_elsewhere_is_another_file(write, tmp_path):
    test = """
        @about()
        def test_value(student, rng): assert student.one() == {}
    """
    (tmp_path / "other").mkdir()
    files = [write(test.format(1)), write(test.format(2), "other/test_public.py")]
    reports = run_tests(files, student(one=lambda: 1), seed=0)
    assert [r.outcome for r in reports] == ["passed", "failed"]
    changed = write(test.format(3))
    assert outcomes(run_tests([changed], student(one=lambda: 1), seed=0)) == {
        "test_value": "failed"
    }


def test_nothing_stays_behind(write, tmp_path, monkeypatch):
    file = write("""
        import random
        LEFT = []
        @about()
        def test_a(student, rng):
            print("to stdout")
            torch.manual_seed(5), random.seed(5), LEFT.append(1)
            assert LEFT == [1]
    """)
    monkeypatch.setitem(sys.modules, "test_public", sys)
    before = (dict(os.environ), list(sys.path), torch.random.get_rng_state(), random.getstate())
    modules = set(sys.modules)
    streams = (sys.stdin, sys.stdout, sys.stderr)
    for _ in range(2):
        assert outcomes(run_tests([file], student(), seed=0)) == {"test_a": "passed"}
    assert dict(os.environ) == before[0] and sys.path == before[1]
    assert torch.equal(torch.random.get_rng_state(), before[2]) and random.getstate() == before[3]
    assert sys.modules["test_public"] is sys and not {
        name for name in set(sys.modules) - modules if str(tmp_path) in str(sys.modules[name])
    }
    assert (sys.stdin, sys.stdout, sys.stderr) == streams
    assert [p.name for p in tmp_path.iterdir()] == ["test_public.py"], "no bytecode, no cache"


def test_global_random_numbers_of_student_code_repeat(write):
    file = write("""
        @about()
        def test_a(student, rng): student.draw()
    """)
    drawn = []
    functions = student(draw=lambda: drawn.append((torch.rand(()).item(), random.random())))
    for seed in (0, 0, 1):
        torch.rand(3)
        run_tests([file], functions, seed=seed)
    assert drawn[0] == drawn[1] != drawn[2]


class Limited(LocalStudent):
    limits = []

    def limited_to(self, seconds):
        self.limits.append(seconds)
        return self


def test_a_tests_own_time_limit_reaches_the_student(write):
    file = write("""
        @exercise("ex1", points=1, invariant="i", cause="c", seconds=30)
        def test_a(student, rng): assert student.one() == 1
        @about()
        def test_b(student, rng): assert student.one() == 1
    """)
    for kind in (LocalStudent, Limited):
        reports = run_tests([file], kind({"one": lambda: 1}), seed=0)
        assert [r.outcome for r in reports] == ["passed", "passed"]
    assert Limited.limits == [30]


def test_no_traceback_is_made_that_nobody_reads(write, monkeypatch):
    """Each takes as long as fifty tests, and a report of ours holds none."""
    styles, original = [], pytest.ExceptionInfo.getrepr

    def getrepr(info, *args, **options):
        styles.append(options.get("style"))
        return original(info, *args, **options)

    monkeypatch.setattr(pytest.ExceptionInfo, "getrepr", getrepr)
    file = write("""
        @about()
        def test_a(student, rng):
            assert student.one() == 2
    """)
    [report] = run_tests([file], student(one=lambda: 1), seed=0)
    assert report.observed == "this does not hold: assert student.one() == 2"
    assert set(styles) <= {"value"}
