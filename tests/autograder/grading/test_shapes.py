"""What real students do to notebooks, and what a few of them try: every shape, through the sandbox.

Whoever wrote code that works gets its points; everybody gets a row.  One batch grades them all.
"""

import copy
import json
from dataclasses import replace

import msgspec
import pytest
from toylab import (
    NAME,
    RIGHT1,
    RIGHT2,
    STUB1,
    answered,
    cell,
    index,
    make_course,
    release,
    write,
)

from autograder.grading.batch import grade_many
from autograder.grading.results import encode, untimed
from autograder.grading.verdict import grade_one
from autograder.intake.discover import discover
from autograder.intake.notebook import parse_notebook
from autograder.labs.manifest import load_lab

FULL, EX1, EX2 = 90, 50, 40


def edited(edit, **answers):
    nb = answered(**answers)
    edit(nb["cells"])
    return nb


def at(cells, grade_id):
    return cells[index({"cells": cells}, grade_id)]


def put(source, where):
    """A cell of the student's own, at this place."""
    return edited(lambda c: c.insert(where, cell("code", source)))


def split(c):
    first, second = RIGHT1.split("\n")
    other = copy.deepcopy(c[2]) | {"id": "other", "source": second}
    c[2]["source"] = first
    c.insert(3, other)


def flip(c):
    for made in c:
        flags = made["metadata"].get("nbgrader", {})
        flags |= {key: not flags[key] for key in ("solution", "grade", "locked") if key in flags}


HELPED = "def scale(numbers, factor):\n    return helper(numbers, factor)"
HELPER = "def helper(numbers, factor):\n    return [n * factor for n in numbers]"
WARNS = "import sys, warnings\n" + RIGHT1.replace(
    "    return", "    warnings.warn('x')\n    print('oops', file=sys.stderr)\n    return"
)
LEAKS = "seen = []\ndef scale(numbers, _):\n    seen.append(numbers)\n    raise ValueError(seen)"
COPY = cell("code", RIGHT1, "ex1", "s", cell_id="copy")
CONFLICT = b"<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> theirs\n"

SLOW = edited(lambda c: c.insert(2, cell("code", f"while True: pass\n{HELPER}")), ex1=HELPED)

# name: (notebook, points, part of a note or None)
SHAPES = {
    "release": (release(), 0, None),
    "solved": (answered(), FULL, None),
    "solution-twice": (edited(lambda c: c.insert(3, COPY)), FULL, "copies of exercise 1"),
    "check-twice": (edited(lambda c: c.append(copy.deepcopy(c[3]))), FULL, None),
    "empty-copy": (
        edited(lambda c: c.append(cell("code", STUB1, "ex1", "s"))),
        FULL,
        "empty template of exercise 1",
    ),
    "split": (edited(split), FULL, "parts of one cell"),
    "check-deleted": (edited(lambda c: c.pop(3)), FULL, None),
    "check-without-metadata": (edited(lambda c: c[3].update(metadata={})), FULL, None),
    "check-edited": (
        edited(lambda c: c[3].update(source='x = 1\nlab.check("ex1", points=100)')),
        FULL,
        "check with other code",
    ),
    "points-100": (
        edited(lambda c: c[3]["metadata"]["nbgrader"].update(points=100)),
        FULL,
        None,
    ),
    "check-as-markdown": (edited(lambda c: c[3].update(cell_type="markdown")), FULL, None),
    "solution-as-markdown": (
        edited(lambda c: c[2].update(cell_type="markdown")),
        EX2,
        "(exercise 1) is a markdown cell",
    ),
    "flags-flipped": (edited(flip), FULL, None),
    "solution-deleted": (edited(lambda c: c.pop(2)), EX2, "cell of exercise 1 is missing"),
    "set-up-deleted": (edited(lambda c: c.pop(1)), FULL, "set-up cell is missing"),
    "metadata-gone": (edited(lambda c: [made.update(metadata={}) for made in c]), FULL, None),
    "helper-before": (edited(lambda c: c.insert(2, cell("code", HELPER)), ex1=HELPED), FULL, None),
    "helper-at-end": (edited(lambda c: c.append(cell("code", HELPER)), ex1=HELPED), FULL, None),
    "check-above-solution": (edited(lambda c: c.insert(2, c.pop(3))), FULL, None),
    "helper-in-a-demo": (
        edited(lambda c: c[4].update(source=HELPER + "\nraise SystemExit"), ex1=HELPED),
        FULL,
        "your solutions use `helper`",
    ),
    "set-up-below": (edited(lambda c: c.append(c.pop(1))), FULL, "set-up for cell 2"),
    "module-overwritten": (put("math = 3", 2), FULL, "overwrites `math`"),
    "bash-before-unfinished": (
        edited(
            lambda c: (
                c.insert(3, cell("code", "scale("))
                or c.insert(2, cell("code", "%%bash\necho hello"))
            )
        ),
        FULL,
        "%%bash",
    ),
    "scratch-raises": (put("1 / 0", 2), FULL, None),
    "pip": (put("!pip install numpy\n%pip install numpy", 2), FULL, "was not run"),
    "timeit": (put("%timeit -n 3 scale([1.0], 2.0)\nx = %time 3", 3), FULL, None),
    "cell-magic": (answered(ex1="%%time\n" + RIGHT1), FULL, None),
    "input": (answered(ex1="factor = input()\n" + RIGHT1), FULL, None),
    "null-byte": (answered(ex1=RIGHT1 + "\n#\x00"), EX2, None),
    "stderr": (answered(ex1=WARNS), FULL, None),
    "other-kernel": (answered() | {"metadata": {"kernelspec": {"name": "julia"}}}, FULL, None),
    "conflict-in-a-cell": (answered(ex1=f"<<<<<<< HEAD\n{RIGHT1}"), EX2, "merge-conflict"),
    "endless-cell": (put("while True: pass", 2), FULL, "Cell 3 took longer than 2 s"),
    "empty-file": (b"", None, "empty"),
    "conflict": (CONFLICT, None, "merge-conflict"),
    # what does not come by accident
    "exits": (answered(ex1="import sys\nsys.exit(0)", ex2=RIGHT2), EX2, None),
    "ends-the-process": (
        answered(ex1="import os\ndef scale(numbers, factor):\n    os._exit(0)"),
        EX2,
        None,
    ),
    "forges": (
        answered(
            ex1="class Yes:\n    def __eq__(self, other): return True\n"
            "def scale(numbers, factor): return Yes()"
        ),
        EX2,
        None,
    ),
    "skips": (
        answered(ex1="import unittest\ndef scale(*a):\n    raise unittest.SkipTest('passed')"),
        EX2,
        None,
    ),
    "prints": (answered(ex1="def scale(*a):\n    print('test_scale_by_hand PASSED')"), EX2, None),
    "leaks": (answered(ex1=LEAKS), EX2, None),
    "exits-in-a-cell": (put("import os\nos._exit(0)", 2), FULL, "Cell 3 was left out"),
}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return make_course(tmp_path_factory.mktemp("course"))


@pytest.fixture(scope="module")
def lab(course):
    return load_lab(NAME, course)


@pytest.fixture(scope="module")
def submissions(course, lab):
    for name, (nb, _, _) in SHAPES.items():
        write(course / "in" / name / f"{NAME} (1).ipynb", nb)
    return discover(course / "in", lab)


@pytest.fixture(scope="module")
def results(lab, submissions):
    return {result.student: result for result in grade_many(lab, submissions)}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_shape(results, name):
    _, points, note = SHAPES[name]
    result = results[name]
    if points is None:
        assert result.status == "rejected" and note in result.reason and result.score == 0
        return
    assert result.status == "graded"
    assert result.score == points, [t.message for e in result.exercises for t in e.tests]
    assert (result.max_score, result.written, result.sandbox) == (FULL, {"w1": 10}, "bubblewrap")
    assert (result.notes == ()) if note is None else any(note in n for n in result.notes)


@pytest.mark.slow
def test_slow_cells_of_one_s_own_cost_no_points(lab, submissions):
    """Without any time for own cells: they are told, solutions and their helpers are there."""
    none = replace(lab, budget=msgspec.structs.replace(lab.budget, notebook_seconds=0))
    [submission] = [row for row in submissions if row.student == "helper-at-end"]
    cells = parse_notebook(json.dumps(SLOW).encode())
    result = grade_one(none, replace(submission, cells=cells))
    assert result.score == FULL
    assert "Cell 3 was not run: the time for a student's own cells was used up." in result.notes


@pytest.mark.slow
def test_every_student_has_one_row(results):
    assert set(results) == set(SHAPES)


@pytest.mark.slow
def test_cells_are_told_by_their_place_in_the_notebook(results):
    errors = {run.label: run.error for run in results["scratch-raises"].cells}
    assert list(errors) == [
        "cell 2, setup",
        "cell 3",
        "cell 4, ex1",
        "cell 7, ex2",
    ]
    assert "ZeroDivisionError" in errors["cell 3"]
    assert not any(error for label, error in errors.items() if label != "cell 3")


@pytest.mark.slow
def test_nothing_of_a_hidden_test_leaves_it(results):
    for result in results.values():
        assert b"SECRET-CANARY" not in encode(result)
    messages = {
        test.test: test.message for part in results["leaks"].exercises for test in part.tests
    }
    assert "ValueError: [[1.0, 2.0]] (line" in messages["test_scale_by_hand"], "public data only"
    assert messages["test_scale_negative"] == "your function raised an exception"


@pytest.mark.slow
def test_a_regrade_is_the_same_run(lab, submissions, results):
    """Same seed, same points, same words; the seed is the student's, whatever is handed in."""
    [submission] = [row for row in submissions if row.student == "leaks"]
    again, first = grade_one(lab, submission), results["leaks"]
    same = [encode(untimed(r)) for r in (again, first)]
    assert same[0] == same[1]
    assert results["solved"].seed != first.seed
    other = next(row for row in submissions if row.student == "solved")
    edited = replace(other, student="leaks", digest="another")
    assert grade_one(replace(lab, suite_hash="another"), edited).seed == first.seed
