"""Further seeds: a test that bites by luck is found, whichever way the luck goes."""

import os
import re
import signal
import sys
import time

import pytest
from toytriad import SOLVED, toy

from autograder.triad import child, forked
from autograder.triad.child import in_child
from autograder.triad.forked import Run, at_hand, run_all
from autograder.triad.judge import Row, joined
from autograder.triad.run import run_seeds, solved_cells, with_one_test
from autograder.triad.variants import NO_WORK, Variant, collect_variants

SEEDS = 12
VARIANTS = {
    # test_scale_negative draws four numbers from -2..-1: the first is wrong for some draws only
    "ex1.diff": """
        === by_luck: Numbers below -1.9 are not multiplied.
        fails: test_scale_negative
        -    return [factor * number for number in numbers]
        +    return [n if n < -1.9 else factor * n for n in numbers]

        === always: The sign is lost.
        fails: test_scale_negative
        -    return [factor * number for number in numbers]
        +    return [abs(factor * number) for number in numbers]
        """,
    "ex1/right_by_luck.py": """
        def scale(numbers, factor):
            return [n if n < -1.9 else factor * n for n in numbers]
        """,
    "ex2/right_other.py": "def clip(n, lo, hi):\n    return [min(max(x, lo), hi) for x in n]",
    "ex2/right_costs_another.py": """
        def clip(n, lo, hi):
            return [min(max(x, lo), hi) for x in n]
        def scale(numbers, factor):
            return numbers
        """,
    "ex2.diff": """
        === ends: The process ends.
        fails: test_clip_random
        +def clip(numbers, lo, hi):
        +    import os
        +    os._exit(0)

        === state: The second call gives the result of the first.
        fails: test_clip_random
        +first = []
        +def clip(numbers, lo, hi):
        +    first.append([max(lo, min(n, hi)) for n in numbers])
        +    return first[0] if len(first) > 1 else numbers
        """,
}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return toy(tmp_path_factory.mktemp("seeds"), VARIANTS)


@pytest.fixture(scope="module")
def rows(course):
    return {row.variant.student: row for row in run_seeds(course[1], SOLVED, SEEDS, jobs=1)}


def seeds_in(problem):
    """{4, 9} of "survives test_x under 2 of 20 seeds (4, 9)"."""
    return set(map(int, re.search(r"\(([\d, ]+)\)", problem)[1].split(", ")))


def test_luck_is_reported_with_its_seeds(rows):
    lost, survived = (rows[f"ex1.{kind}.by_luck"].problem for kind in ("right", "wrong"))
    assert lost.startswith("loses test_scale_negative under ")
    assert survived.startswith("survives test_scale_negative under ")
    assert f"of {SEEDS} seeds" in lost and f"of {SEEDS} seeds" in survived
    # the same draws refuse the right one and catch the wrong one
    assert seeds_in(lost) and seeds_in(survived)
    assert seeds_in(lost) | seeds_in(survived) == set(range(SEEDS))
    assert not seeds_in(lost) & seeds_in(survived)


def test_what_does_not_hang_on_luck_is_well(rows):
    well = {student for student, row in rows.items() if not row.problem}
    assert well == {
        "lab.right.canonical", "ex1.wrong.always", "ex2.right.other", "ex2.wrong.ends",
        "ex2.wrong.state",
    }  # fmt: skip


def test_at_hand_the_verdicts_are_the_same_without_a_server(course, rows):
    _, lab = course
    cells = solved_cells(lab, SOLVED)
    here = at_hand(lab, cells, lambda: list(run_seeds(lab, SOLVED, SEEDS)))
    assert {row.variant.student: row for row in here} == rows
    with pytest.raises(ZeroDivisionError):
        at_hand(lab, cells, lambda: 1 / 0)
    assert not forked._waiting, "the next run would take it for its own"


def test_what_is_right_costs_nothing_elsewhere(course, rows):
    """Under several seeds; under one, which is the day's, it runs with its own exercise alone."""
    assert rows["ex2.right.costs_another"].problem.startswith("loses test_scale_by_hand under 12")
    chosen = [v for v in collect_variants(course[1], SOLVED) if v.name == "costs_another"]
    [row] = run_seeds(course[1], SOLVED, 1, chosen=chosen, jobs=1)
    assert not row.problem


def test_no_work_is_left_out(course, rows):
    everything = collect_variants(course[1], SOLVED)
    assert len(rows) == len(everything) - NO_WORK
    assert {v.student for v in everything} - set(rows) == {
        v.student for v in everything if v.kind == "none"
    }


def test_a_wrong_variant_can_be_given_one_of_its_tests(course):
    """The same one each time; which one differs; the others stay as they are."""
    several = [
        Variant("ex1", name, "wrong", (), ("test_a", "test_b", "test_c")) for name in "abcdefgh"
    ]
    given = with_one_test(several)
    assert all(len(v.fails) == 1 and set(v.fails) < {"test_a", "test_b", "test_c"} for v in given)
    assert given == with_one_test(several) and len({v.fails for v in given}) > 1
    everything = collect_variants(course[1], SOLVED)
    assert with_one_test(everything) == everything  # none of them names two
    chosen = [v for v in with_one_test(everything) if v.name == "always"]
    [row] = run_seeds(course[1], SOLVED, 2, chosen=chosen, jobs=1)
    assert row.failed == ("test_scale_negative",) and not row.problem


def test_only_the_tests_that_matter_run(course):
    _, lab = course
    cells = solved_cells(lab, SOLVED)
    runs = [Run((), "ex1"), Run((), ""), Run((), "ex1", tests=("test_scale_by_hand",))]
    one, all_of_them, named = run_all(lab, cells, runs, "public")
    assert [saw.test for saw in one.saw] == ["test_scale_by_hand"] == [s.test for s in named.saw]
    assert [saw.test for saw in all_of_them.saw] == ["test_scale_by_hand", "test_clip_by_hand"]
    assert all(saw.passed for saw in all_of_them.saw)


def test_nothing_of_a_run_reaches_the_next(course):
    _, lab = course
    cells = solved_cells(lab, SOLVED)
    spoilt = Run(("def scale(*_): return None\nimport sys; sys.modules.clear()",), "ex1")
    bad, good = run_all(lab, cells, [spoilt, Run((), "ex1")], "public")
    assert bad.failed == ("test_scale_by_hand",) and not good.failed


def test_what_torch_imports_late_is_imported_once(course, monkeypatch):
    """Told by one child, it is there before the next one is forked; nothing else is imported."""
    _, lab = course
    late = "torch.utils.flop_counter"
    monkeypatch.delitem(sys.modules, late, raising=False)
    look = Run((f"import sys\n{forked.RECORDED} = ['{late}' in sys.modules]",), "ex1")
    used = Run((f"import {late}, this",), "ex1")
    before, _, after = run_all(lab, solved_cells(lab, SOLVED), [look, used, look], "public")
    assert before.recorded == (False,) and after.recorded == (True,)
    assert "this" not in sys.modules


ENDLESS = {
    "in a call": "def scale(*_):\n    while True: pass",
    "although it catches exceptions": """
def scale(*_):
    while True:
        try:
            while True: pass
        except Exception: pass
""",
    "in the cell": "def scale(*_): return None\nwhile True: pass",
}


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS)
def test_a_loop_without_end_is_a_failure(course, source):
    _, lab = course  # its budget: 2 s a cell, 3 s a call
    [outcome] = run_all(lab, solved_cells(lab, SOLVED), [Run((source,), "ex1")], "public")
    assert outcome.failed == ("test_scale_by_hand",)


def test_memory_is_limited(course):
    _, lab = course
    source = "def scale(*_):\n    return [len(bytes(2**33))]"
    [outcome] = run_all(lab, solved_cells(lab, SOLVED), [Run((source,), "ex1")], "public")
    assert "MemoryError" in outcome.saw[0].observed


def test_a_child_that_sleeps_or_crashes_is_told(monkeypatch):
    monkeypatch.setattr(child, "CHILD_SECONDS", 0.5)
    assert in_child(lambda: time.sleep(600)) == (b"", "killed after 0.5 s")
    monkeypatch.setattr(child, "CHILD_SECONDS", 600.0)
    assert in_child(lambda: os.kill(os.getpid(), signal.SIGKILL)) == (b"", "signal 9")
    assert in_child(lambda: b"x" * 10**6) == (b"x" * 10**6, "exit code 0")


def test_both_runs_of_a_variant_make_one_row(course):
    variant = collect_variants(course[1], SOLVED)[0]
    said = [Row(variant, (), ""), Row(variant, (), "a")], [Row(variant, (), "b")]
    assert [row.problem for row in joined(*said)] == ["b", "a; b"]
