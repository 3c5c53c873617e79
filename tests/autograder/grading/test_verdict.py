"""From reports to points and words: only what passed counts, and little may be said."""

import time
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toylab import NAME, make_course

from autograder.grading.judge import by_exercise, judge, kept_answer, late_notes, plain, total
from autograder.grading.results import (
    CellRun,
    Report,
    Result,
    TestResult,
    decode_result,
    encode,
    read_report,
    write_report,
)
from autograder.grading.verdict import TimedStudent, grade_one, run_timed
from autograder.intake.discover import Rejected
from autograder.labs.manifest import load_lab
from efflib.lab.report import TestReport
from efflib.lab.student import LocalStudent, Student, StudentError


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return load_lab(NAME, make_course(tmp_path_factory.mktemp("course")))


def report(test, /, **changes):
    file = "test_hidden.py" if test.kind == "hidden" else "test_public.py"
    made = TestReport(test.exercise, test.test, "t", 99.0, "i", "c", file=file)
    return replace(made, **{"outcome": "passed", "observed": ""} | changes)


def test_points_come_from_the_manifest_not_from_the_reports(lab):
    results = judge(lab.tests, [report(test) for test in lab.tests], 10)
    assert [r.points for r in results] == [20, 15, 30, 25]
    assert [e.points for e in by_exercise(lab, results)] == [50, 40]


@pytest.mark.parametrize("outcome", ["failed", "not verified", "skipped", "xpassed", "PASSED", ""])
def test_only_passed_counts(lab, outcome):
    results = judge(lab.tests, [report(test, outcome=outcome) for test in lab.tests], 10)
    assert [r.points for r in results] == [0, 0, 0, 0]


def test_what_did_not_report_scores_nothing_and_what_was_not_declared_does_not_count(lab):
    stranger = report(lab.tests[0], test="test_invented")
    moved = report(lab.tests[2], file="test_public.py")
    results = judge(lab.tests, [stranger, moved, report(lab.tests[1])], 10)
    assert [r.points for r in results] == [0, 15, 0, 0]
    assert results[0].message == "the test did not report"


@given(
    st.lists(st.sampled_from(["passed", "failed", "not verified", None]), min_size=4, max_size=4)
)
def test_score_is_the_sum_of_what_passed(lab, outcomes):
    pairs = zip(lab.tests, outcomes, strict=True)
    reports = [report(test, outcome=outcome) for test, outcome in pairs if outcome]
    exercises = by_exercise(lab, judge(lab.tests, reports, 10))
    passed = [t.points for t, o in zip(lab.tests, outcomes, strict=True) if o == "passed"]
    assert total(e.points for e in exercises) == sum(passed) <= lab.max_score


SECRET = "secret 0.123"
HIDDEN_WORDS = {
    "": "",
    "TypeError": "your function raised an exception",
    "RuntimeError": "your function raised an exception",
    "NotImplementedError": "not attempted",
    "Undefined": "the function is not defined",
    "ChangedArgument": "the function changed one of its arguments in place",
    "Timeout": "stopped after 7 s",
    "MemoryLimit": "stopped: it used too much memory",
    "Exit": "stopped: it ended the process in which it ran",
    "Protocol": "stopped: it disturbed the process in which it ran",
    "Secret_0_123": "your function raised an exception",
    "SystemExit": "your function raised an exception",
    "x" * 500: "your function raised an exception",
}


@pytest.mark.parametrize("kind, words", HIDDEN_WORDS.items())
def test_a_hidden_test_says_one_of_a_few_sentences(lab, kind, words):
    failed = report(lab.tests[2], outcome="failed", observed=SECRET, kind=kind)
    assert judge(lab.tests, [failed], 7)[2].message == words


def test_a_public_test_says_what_it_saw(lab):
    seen = report(lab.tests[0], outcome="failed", observed="a\nb\u202e\x1b[31m" + "x" * 900)
    message = judge(lab.tests, [seen], 7)[0].message
    assert message.startswith("a b??[31mx") and len(message) <= 400


@given(st.text())
def test_plain_text_is_one_short_printable_line(text):
    line = plain(text)
    assert len(line) <= 400 and "\n" not in line and line.encode() is not None


def test_a_kept_answer_is_bounded_and_shows_what_was_written():
    answer = "Grüße 👩\u200d💻\n\t$a<b$"
    assert kept_answer(answer) == answer
    assert kept_answer("a\x1b[31m\u202eb\x00") == "a?[31m?b?"
    long = kept_answer("x" * 10**6)
    assert len(long) < 60_000 and long.endswith("1000000 characters in all")


def test_a_cell_that_was_stopped_is_told_once():
    runs = [CellRun(label=f"cell {n}", error=e) for n, e in enumerate(["Timeout: x", "x", None])]
    runs += [CellRun(label="cell 7", error="Timeout"), CellRun(label="cell 8", error="not run: y")]
    assert late_notes(runs, 5, ["Cell 7 was left out."]) == [
        "Cell 0 took longer than 5 s: it was stopped there.",
        "Cell 8 was not run: y.",
    ]


# ---- results ------------------------------------------------------------------------------------


def test_a_result_survives_its_file(lab, tmp_path):
    tests = judge(lab.tests, [report(test) for test in lab.tests], 10)
    result = Result(
        student="alice",
        lab=NAME,
        status="graded",
        score=90,
        max_score=90,
        exercises=by_exercise(lab, tests),
        notes=("Zwölf <b>",),
    )
    assert decode_result(encode(result)) == result
    write_report(tmp_path / "r.json", Report(lab=NAME, results=(result,)))
    assert read_report(tmp_path / "r.json").results == (result,)


@pytest.mark.parametrize("score", [91, -1, float("nan"), float("inf")])
def test_no_score_outside_the_range(score):
    with pytest.raises(ValueError):
        Result(student="a", lab=NAME, status="graded", score=score, max_score=90)


def test_no_test_gives_more_than_it_has():
    test = TestResult(
        exercise="ex1", test="t", title="t", kind="public", outcome="passed", points=3,
        max_points=2, invariant="", cause="",
    )  # fmt: skip
    from autograder.grading.results import ExerciseResult

    part = ExerciseResult(exercise="ex1", title="", points=2, max_points=2, tests=(test,))
    with pytest.raises(ValueError):
        Result(student="a", lab=NAME, status="graded", max_score=90, exercises=(part,))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"student": 1}', b'{"schema": 99, "student": "a", "lab": "l", '
             b'"status": "graded", "max_score": 1}']
)  # fmt: skip
def test_foreign_bytes_are_no_result(data):
    with pytest.raises(msgspec.DecodeError):
        decode_result(data)


def test_rejected_and_fault_are_rows_without_points(lab):
    row = grade_one(lab, Rejected("alice", NAME, "the file is empty"))
    assert (row.status, row.score, row.max_score, row.reason) == (
        "rejected", 0, 90, "the file is empty",
    )  # fmt: skip
    assert row.written == {"w1": 10}


# ---- the run ------------------------------------------------------------------------------------


def test_calls_fail_once_the_time_is_up():
    local = LocalStudent({"f": lambda: 1})
    with pytest.raises(StudentError, match="used up"):
        TimedStudent(local, time.monotonic() - 1).f()
    with pytest.raises(StudentError, match="used up"):
        TimedStudent(local, time.monotonic() - 1).drive(lambda student: student.f())
    assert TimedStudent(local, float("inf")).limited_to(5).f() == 1


def test_ctrl_c_is_passed_on_instead_of_failing_the_other_tests(lab):
    class Interrupted(Student):
        def _call(self, name, args, kwargs):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_timed(list(lab.test_files.values()), Interrupted(), 0)


def test_the_seed_decides_the_random_inputs(lab):
    def inputs(seed):
        seen = []

        class Recording(Student):
            def _call(self, name, args, kwargs):
                seen.append(args)
                return None

        run_timed(list(lab.test_files.values()), Recording(), seed)
        return seen

    assert inputs(1) == inputs(1) != inputs(2)
