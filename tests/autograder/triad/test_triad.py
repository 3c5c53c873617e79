"""The triad finds tests that do not bite: a wrong variant that survives, a right one that fails."""

import dataclasses
import json
import re

import msgspec
import pytest
from toylab import NAME, answered, make_course, release, write

from autograder.commands.triads import show_triad
from autograder.grading.judge import by_exercise, judge
from autograder.grading.results import Result
from autograder.intake.notebook import parse_notebook
from autograder.labs.manifest import LabError, load_lab
from autograder.triad.judge import judge_variant, missing_variants
from autograder.triad.run import a_few, run_triad
from autograder.triad.variants import STUBS, collect_variants, frozen_but
from efflib.lab.report import TestReport

VARIANTS = {
    "ex1/right_map.py": "def scale(numbers, factor):\n    return [*map(factor.__mul__, numbers)]",
    "ex1/right_but_not.py": "def scale(numbers, factor):\n    return tuple(numbers)",
    "ex1.diff": """
        === abs: Takes the absolute value: the sign is lost.
        fails: test_scale_negative
        -    return [factor * number for number in numbers]
        +    return [abs(factor * number) for number in numbers]

        === survivor: Multiplies twice by one, which is no mistake.
        fails: test_scale_negative, test_scale_by_hand
        -    return [factor * number for number in numbers]
        +    return [1 * factor * number for number in numbers]
        """,
    "ex2.diff": """
        === spills: Breaks the other exercise as well.
        fails: test_clip_by_hand
        +def clip(numbers, lo, hi):
        +    return numbers
        +del scale
        """,
}
WRONG = 3


def dedent(text):
    lines = text.strip("\n").split("\n")
    return "\n".join(line.removeprefix("        ") for line in lines) + "\n"


def cells(nb):
    return parse_notebook(json.dumps(nb).encode())


SOLVED = cells(answered())


@pytest.fixture
def course(tmp_path):
    root = make_course(tmp_path)
    for path, source in VARIANTS.items():
        write(triad(root) / path, dedent(source).encode())
    return root


def triad(root):
    return root / "autograder/suites" / NAME / "triad"


def test_a_few_are_work_that_is_none_and_what_forges_the_machinery(course):
    lab = load_lab(NAME, course)
    variants = collect_variants(lab, SOLVED)
    forged = dataclasses.replace(variants[-1], name="forged_answers")
    few = a_few([*variants, forged])
    assert [variant.name for variant in few[:-1]] == [f"returns-{stub}" for stub in STUBS]
    assert few[-1] == forged
    assert len(list(run_triad(lab, SOLVED, chosen=few[:1]))) == 1


@pytest.mark.slow
def test_the_kill_table(course, capsys):
    lab = load_lab(NAME, course)
    rows = list(run_triad(lab, SOLVED))
    problems = {row.variant.student: row.problem for row in rows if row.problem}
    assert len(rows) == 2 + WRONG + 5
    assert {row.variant.name for row in rows} >= {"canonical", "release", "returns-none"}
    assert set(problems) == {"ex1.right.but_not", "ex1.wrong.survivor", "ex2.wrong.spills"}
    assert problems["ex1.right.but_not"].startswith("loses points: test_scale_by_hand")
    assert problems["ex1.wrong.survivor"] == "survives test_scale_by_hand, test_scale_negative"
    assert problems["ex2.wrong.spills"].startswith("also breaks test_scale_by_hand")
    show_triad(lab, rows, missing_variants(lab, rows))
    table = capsys.readouterr().out
    assert "the sign is lost" in table
    assert "1 of 3 wrong variants killed as declared; 6 problems" in table
    assert "ex2 has 0 right variants, at least 2 are needed" in table


def test_a_test_that_gives_points_for_no_work_is_found(course):
    """The audit of zero work: what the untouched release or a stub gets is a problem."""
    lab = load_lab(NAME, course)
    by_name = {variant.name: variant for variant in collect_variants(lab, SOLVED)}
    sources = [by_name[f"returns-{stub}"].cells[-1].source for stub in ("none", "argument", "zero")]
    outcomes = []
    for source in sources:
        namespace = {}
        exec(source, namespace)
        outcomes.append([namespace[name]([1.0], 2) for name in ("scale", "clip")])
    assert outcomes == [[None, None], [[1.0], [1.0]], [0, 0]]
    result = graded(lab, passed={"test_scale_by_hand"})
    assert (
        judge_variant(lab, by_name["release"], result).problem == "gets points: test_scale_by_hand"
    )
    assert judge_variant(lab, by_name["release"], graded(lab, passed=())).problem == ""


def graded(lab, passed):
    reports = [
        TestReport(t.exercise, t.test, "", 0, "", "", "passed", file=f"test_{t.kind}.py")
        for t in lab.tests
        if t.test in passed
    ]
    exercises = by_exercise(lab, judge(lab.tests, reports, 1))
    return Result(student="x", lab=NAME, status="graded", max_score=90, exercises=exercises)


def test_the_canonical_solution_must_get_everything(course):
    lab = load_lab(NAME, course)
    canonical = collect_variants(lab, SOLVED)[0]
    everything = {test.test for test in lab.tests}
    assert judge_variant(lab, canonical, graded(lab, everything)).problem == ""
    almost = judge_variant(lab, canonical, graded(lab, everything - {"test_clip_random"}))
    assert almost.problem.startswith("loses points: test_clip_random")
    failed = msgspec.structs.replace(graded(lab, everything), status="fault", reason="x")
    assert judge_variant(lab, canonical, failed).problem == "not graded: x"


def test_frozen_functions_keep_calling_the_canonical_ones(course):
    lab = load_lab(NAME, course)
    namespace = {}
    exec(
        "HALF = 0.5\n"
        "def scale(x, *, by=2): return helper(x) * by\n"
        "def helper(x): return x + HALF\n"
        "def clip(x): return scale(x, by=10)\n",
        namespace,
    )
    exec(frozen_but(lab, "ex1", ())[-1].source, namespace)
    exec("def scale(x, *, by=2): return -1\ndef helper(x): return -1", namespace)
    assert namespace["clip"](1) == 15 and namespace["scale"](1) == -1


def test_a_frozen_class_finds_its_base_by_super(course):
    namespace = {}
    exec(
        "class Base:\n"
        "    def __init__(self): self.seen = 1\n"
        "def more(): return 1\n"
        "class clip(Base):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.seen += more()\n",
        namespace,
    )
    exec(frozen_but(load_lab(NAME, course), "ex1", ())[-1].source, namespace)
    exec("def more(): return 5", namespace)
    assert namespace["clip"]().seen == 2 and type(namespace["clip"]()) is namespace["clip"]


EDIT = "-    return [factor * number for number in numbers]\n+    return []\n"
BAD = {
    "without a mistake": ("ex1.diff", f"=== x: \nfails: test_scale_by_hand\n{EDIT}"),
    "without a colon": ("ex1.diff", f"=== x\nfails: test_scale_by_hand\n{EDIT}"),
    "without a test": ("ex1.diff", f"=== x: A mistake.\n{EDIT}"),
    "a test of another exercise": ("ex1.diff", f"=== x: Bad.\nfails: test_clip_random\n{EDIT}"),
    "a test that is none": ("ex1.diff", f"=== x: A mistake.\nfails: test_x\n{EDIT}"),
    "without an edit": ("ex1.diff", "=== x: A mistake.\nfails: test_scale_by_hand\n"),
    "two of a name": ("ex1.diff", 2 * f"=== x: A mistake.\nfails: test_scale_by_hand\n{EDIT}\n"),
    "of nobody": ("ex1.diff", f"=== x: A mistake.\nfails: test_scale_by_hand\nof: y\n{EDIT}"),
    "something before": ("ex1.diff", f"# notes\n=== x: Bad.\nfails: test_scale_by_hand\n{EDIT}"),
    "no Python": ("ex1.diff", "=== x: A mistake.\nfails: test_scale_by_hand\n+def scale(:\n"),
    "an edit that fits nowhere": (
        "ex1.diff",
        "=== x: A mistake.\nfails: test_scale_by_hand\n-    return numbers\n+    return []\n",
    ),
    "strange name": ("ex1/maybe.py", "x = 1"),
    "wrong and whole, as a file": ("ex1/wrong_x.py", '"""A mistake."""'),
    "strange exercise": ("ex7.diff", f"=== x: A mistake.\nfails: test_scale_by_hand\n{EDIT}"),
}


@pytest.mark.parametrize("path, source", BAD.values(), ids=BAD)
def test_a_variant_that_checks_nothing_is_refused(course, path, source):
    write(triad(course) / path, source.encode())
    with pytest.raises(LabError, match=re.escape(path.split("/")[-1].split("_")[0])):
        collect_variants(load_lab(NAME, course), SOLVED)


def test_variants_are_added_behind_the_solution_and_stubs_behind_the_release(course):
    lab = load_lab(NAME, course)
    variants = collect_variants(lab, SOLVED)
    for variant in variants:
        base = cells(release()) if variant.kind == "none" else SOLVED
        assert variant.cells[: len(base)] == base
        assert len(variant.cells) - len(base) == {"wrong": 2}.get(
            variant.kind, 0 if variant.name in ("canonical", "release") else 1
        )
    wrong = [variant for variant in variants if variant.kind == "wrong"]
    assert [v.student for v in wrong] == ["ex1.wrong.abs", "ex1.wrong.survivor", "ex2.wrong.spills"]
    assert wrong[0].mistake == "Takes the absolute value: the sign is lost."
