"""Item analysis against numpy and by hand; labels that give nobody away."""

import math

import numpy as np
import pytest
from classes import LAB, apart, generated, result, test_result
from hypothesis import given
from hypothesis import strategies as st

from autograder.grading.results import CellRun, Report
from autograder.report.items import analyse, correlation
from autograder.report.rows import graded_rows, key_of
from autograder.report.summary import (
    causes,
    histogram,
    of_status,
    pattern,
    quartiles,
    slow_cells,
)

FINITE = st.floats(-1e6, 1e6, allow_nan=False)


def rows_of(*results, **about):
    return graded_rows(Report(lab=LAB, results=tuple(results), **about))


@given(st.lists(st.tuples(FINITE, FINITE), min_size=2, max_size=30))
def test_correlation_is_numpy_s(pairs):
    xs, ys = map(list, zip(*pairs, strict=True))
    observed = correlation(xs, ys)
    if observed is None:
        assert np.std(xs) * np.std(ys) * len(xs) < 1e-8
    elif np.std(xs) > 1e-3 and np.std(ys) > 1e-3:
        assert observed == pytest.approx(np.corrcoef(xs, ys)[0, 1], abs=1e-6)


def test_every_item_of_a_large_class_is_numpy_s():
    rows = graded_rows(generated(120))
    counted = [row for row in rows if not row.untouched]
    assert 0 < len(counted) < len(rows), "the class has no untouched submission"
    scores = np.array([row.result.score for row in counted])
    for item in analyse(rows):
        key = key_of(item.test)
        passes = np.array([row.states[key] == "passed" for row in counted], float)
        assert item.difficulty == pytest.approx(passes.mean())
        expected = np.corrcoef(passes, scores - item.test.max_points * passes)[0, 1]
        assert item.discrimination == pytest.approx(expected)
        assert item.lost == pytest.approx(item.test.max_points * (1 - passes.mean()))


def class_of_four():
    """test a: all pass; b: nobody; c: the two best; d: the two worst; one student did nothing."""
    passing = {"s1": "aceh", "s2": "ace", "s3": "ad", "s4": "ad"}
    made = []
    for student, passed in passing.items():
        tests = [test_result("ex1", n, "passed" if n in passed else "failed", 1 + 9 * (n == "e"))
                 for n in "abcdeh"]  # fmt: skip
        made.append(result(student, tests))
    stub = [test_result("ex1", n, "failed", 1 + 9 * (n == "e"), "not attempted") for n in "abcdeh"]
    return [*made, result("s5", stub)]


def test_what_items_say():
    items = {item.test.test: item for item in analyse(rows_of(*class_of_four()))}
    assert items["a"].remark == "everybody passes" and items["a"].discrimination is None
    assert items["b"].remark == "nobody passes" and items["b"].lost == 1
    assert items["c"].difficulty == 0.5 and items["c"].discrimination > 0.9
    assert items["d"].discrimination < -0.9
    assert items["d"].remark == "who passes has fewer points elsewhere"
    assert items["e"].lost == 5
    assert all(item.answers == 4 and item.not_attempted == 0 for item in items.values())


@pytest.mark.parametrize("results", [[], [apart("a", "missing")], class_of_four()[-1:]])
def test_classes_with_nothing_to_analyse(results):
    assert all(item.answers == 0 and item.remark == "" for item in analyse(rows_of(*results)))


def test_one_submission_has_no_correlation():
    [first, second] = analyse(rows_of(result("a", [test_result("ex1", "x"), test_result(
        "ex1", "y", "failed")])))  # fmt: skip
    assert first.discrimination is None and second.remark == "nobody passes"


# ---- who is who ---------------------------------------------------------------------------------


def test_labels_do_not_depend_on_names_or_order():
    """Other ids, in another order: the same rows."""
    report = generated(40)
    ids = [r.student for r in report.results]
    other = [changed(r, student=f"z{999 - n}") for n, r in enumerate(report.results)]
    again = Report(lab=LAB, results=tuple(reversed(other)))
    shown = [[(row.label, row.result.score, row.states) for row in graded_rows(r)]
             for r in (report, again)]  # fmt: skip
    assert shown[0] == shown[1] and not any(name in str(shown) for name in ids)


def changed(struct, **values):
    import msgspec

    return msgspec.structs.replace(struct, **values)


def test_names_are_told_when_asked_for():
    report = Report(lab=LAB, results=tuple(class_of_four()), names={"s1": "Ann"})
    assert graded_rows(report, named=True)[0].label == "1 s1 (Ann)"
    absent = Report(lab=LAB, results=(apart("s9", "missing", "x"), apart("u", "unclear", "why")))
    assert of_status(absent, "missing") == ["s9"] and of_status(absent, "unclear") == ["u: why"]


# ---- the other figures --------------------------------------------------------------------------


@given(st.lists(st.integers(0, 90)))
def test_every_score_is_in_one_bin(scores):
    bins = histogram(scores, 90)
    assert sum(one.count for one in bins) == len(scores)
    assert bins[-1].count == sum(score >= 81 for score in scores)
    for low, high, count in bins[:-1]:
        assert count == sum(low <= score < high for score in scores)
    assert histogram([], 0)[0].count == 0


def test_quartiles_of_few():
    assert quartiles([1, 2, 3, 4, 5]) == (2, 3, 4) and quartiles([7]) == (7, 7, 7)
    assert all(map(math.isnan, quartiles([])))


def test_causes_are_summed_over_tests_and_messages_need_two_students():
    def one(student, shape, cause="axis"):
        return result(student, [
            test_result("ex1", "a", "failed", 3, f"shape ({shape}, {shape})", cause=cause),
            test_result("ex1", "b", "failed", 1, f"said by {student}", "hidden", cause=cause),
            test_result("ex1", "c", "failed", 1, f"only {student}", cause=cause),
            test_result("ex2", "d", "failed", 9, "not attempted"),
        ])  # fmt: skip

    [cause] = causes(rows_of(one("ann", 3), one("bob", 4)))
    assert (cause.students, cause.lost, cause.cause) == (2, 10, "axis")
    assert cause.messages == [("shape (# ...)", 2)]
    assert cause.invariants == ["what a asks for", "what b asks for", "what c asks for"]


@pytest.mark.parametrize(
    "message, told",
    [
        ("it is 1.5e-3, not -2", "it is #, not #"),
        ("x2 of int8 and v_3", "x2 of int8 and v_3"),
        ("[1.0, 2.0, 3.0]", "[# ...]"),
    ],
)
def test_numbers_of_messages(message, told):
    assert pattern(message) == told


def test_slow_cells_are_named_by_the_release_only():
    def one(student, seconds, error=None):
        cells = (
            CellRun(label="cell 7, ex2", seconds=seconds, error=error),
            CellRun(label="cell 9, ann's cell", seconds=2 * seconds),
            CellRun(label="set-up cell, setup", seconds=0.1),
        )
        return result(student, [test_result("ex2", "a")], cells=cells, answers={"ex2": "x"})

    found = slow_cells(rows_of(one("a", 0.5), one("b", 3.0, "Timeout: 3 s"), one("c", 0.7)))
    assert [(c.cell, c.runs, c.longest, c.stopped) for c in found] == [
        ("other cells", 3, 6.0, 0),
        ("ex2", 3, 3.0, 1),
    ]
    assert found[1].median == 0.7
