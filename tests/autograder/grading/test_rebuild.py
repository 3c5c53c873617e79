"""What runs of a submission, in which order, and what the student is told about it."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toylab import (
    RIGHT1,
    RIGHT2,
    SETUP,
    STUB1,
    answered,
    cell,
    index,
    notebook,
    release,
)

from autograder.grading import verdict
from autograder.grading.rebuild import bare_check, rebuild
from autograder.intake.notebook import parse_notebook


def cells(nb):
    return parse_notebook(json.dumps(nb).encode())


def built(nb, released=None):
    return rebuild(cells(nb), cells(released or release()))


def sources(nb):
    return [c.source for c in built(nb).cells]


def edited(edit, **answers):
    nb = answered(**answers)
    edit(nb["cells"])
    return nb


def test_the_solved_notebook_runs_set_up_and_solutions_only():
    result = built(answered())
    assert [c.source for c in result.cells] == [SETUP, RIGHT1, RIGHT2]
    assert [c.label for c in result.cells] == ["cell 2, setup", "cell 3, ex1", "cell 6, ex2"]
    assert result.answers == {"ex1": RIGHT1, "ex2": RIGHT2, "w1": "Because."}
    assert result.notes == ()


def test_the_release_has_nothing_to_say():
    assert built(release()).notes == ()
    assert sources(release())[1] == STUB1


def test_own_cells_run_in_place():
    helper = cell("code", "helper = 1")
    nb = edited(lambda c: (c.insert(2, helper), c.append(cell("code", "late = 2"))))
    assert sources(nb) == [SETUP, "helper = 1", RIGHT1, RIGHT2, "late = 2"]


@pytest.mark.parametrize(
    "source", ['lab.check("ex1")', 'lab.hint("ex1")\nlab.check("ex2")', "lab.report()"]
)
def test_bare_checks_do_not_run_wherever_they_are(source):
    nb = edited(lambda c: c.append(cell("code", source)))
    assert sources(nb) == [SETUP, RIGHT1, RIGHT2]
    assert bare_check(source)


@pytest.mark.parametrize(
    "source", ["x = lab.check('ex1')", "check('ex1')", "", "lab.check(", "other.check()", "lab.x()"]
)
def test_other_code_is_no_bare_check(source):
    assert not bare_check(source)


def test_code_in_a_check_cell_runs():
    def edit(c):
        c[index({"cells": c}, "ex1-check")]["source"] = 'late = 1\nlab.check("ex1")'

    result = built(edited(edit))
    assert "late = 1" in result.cells[2].source
    assert result.notes == ("Cell 4 is a check with other code in it: that code was run as well.",)


def test_demonstrations_do_not_run():
    changed = edited(lambda c: c[4].update(source="x = 1"))
    assert sources(changed) == [SETUP, RIGHT1, RIGHT2]
    assert "demonstration, which you changed" in built(changed).notes[0]
    moved = edited(lambda c: c.append(c.pop(4) | {"id": "new", "metadata": {}}))
    assert sources(moved) == [SETUP, RIGHT1, RIGHT2], "known by its text"
    own = edited(lambda c: c.append(cell("code", "train()", tags=["skip-grading"])))
    assert sources(own) == [SETUP, RIGHT1, RIGHT2]
    assert built(own).notes == ("Cell 9 is tagged as a demonstration: it was not run.",)


def test_a_tag_does_not_keep_a_solution_from_running():
    nb = edited(lambda c: c[2]["metadata"].update(tags=["demo"]))
    assert sources(nb) == [SETUP, RIGHT1, RIGHT2]


def test_written_answers_are_never_code():
    nb = edited(lambda c: c[7].update(cell_type="code", source="import os"))
    result = built(nb)
    assert "import os" not in [c.source for c in result.cells]
    assert result.answers["w1"] == "import os"
    assert "written answer" in result.notes[0]


# ---- copies, templates, missing cells -----------------------------------------------------------


def test_copies_run_in_order_and_the_last_counts():
    nb = edited(lambda c: c.insert(3, cell("code", "def scale(a, b): return 0", "ex1", "s")))
    result = built(nb)
    assert [c.source for c in result.cells][1:3] == [RIGHT1, "def scale(a, b): return 0"]
    assert result.notes == (
        "Cells 3 and 4 are copies of exercise 1: both ran, the last definition counts.",
    )
    assert result.answers["ex1"] == RIGHT1 + "\n\ndef scale(a, b): return 0"


def test_an_empty_copy_does_not_undo_the_solution():
    nb = edited(lambda c: c.append(cell("code", STUB1, "ex1", "s")))
    result = built(nb)
    assert STUB1 not in [c.source for c in result.cells]
    assert result.answers["ex1"] == RIGHT1
    assert "empty template of exercise 1 (cell 9)" in result.notes[0]


def test_solution_in_a_cell_of_its_own_above_the_template():
    nb = edited(lambda c: c.insert(1, cell("code", RIGHT1)), ex1=STUB1)
    result = built(nb)
    assert [c.source for c in result.cells] == [SETUP, RIGHT1, SETUP, RIGHT2]
    assert result.answers["ex1"] == RIGHT1


def test_a_released_cell_is_nobodys_solution():
    """A set-up cell that happens to define the same name leaves the template in force."""
    released = release()
    released["cells"].insert(1, cell("code", RIGHT1, cell_id="given"))
    assert STUB1 in [c.source for c in built(released, released).cells]


def test_missing_solution_cell():
    result = built(edited(lambda c: c.pop(2)))
    assert result.notes == ("The cell of exercise 1 is missing: there is nothing to grade.",)
    assert "ex1" not in result.answers


def test_lost_metadata_is_found_again_by_the_cell_id_and_by_the_text():
    nb = answered()
    for made in nb["cells"]:
        made["metadata"] = {}
    assert built(nb).answers == {"ex1": RIGHT1, "ex2": RIGHT2, "w1": "Because."}
    for made in nb["cells"]:
        made.pop("id", None)
    result = built(nb)
    assert [c.source for c in result.cells] == [SETUP, RIGHT1, RIGHT2]
    assert result.answers == {"ex1": RIGHT1, "ex2": RIGHT2, "w1": "Because."}
    assert list(result.look) == ["w1"], "code is known by its functions, text by its place"


def test_deleted_set_up_comes_back_in_its_place():
    released = release()
    released["cells"].insert(5, cell("code", "EPS = 1e-6", "eps", "l"))
    nb = copy.deepcopy(released)
    del nb["cells"][5], nb["cells"][1]
    result = built(nb, released)
    order = [c.source for c in result.cells]
    assert order[0] == SETUP and order.index("EPS = 1e-6") == 2
    assert result.cells[0].label == "set-up cell, setup"
    assert len(result.notes) == 2 and "`import math`" in result.notes[0]


def test_changed_set_up_runs_as_changed():
    nb = edited(lambda c: c[1].update(source=SETUP + "\nimport json"))
    assert sources(nb)[:2] == [SETUP, SETUP + "\nimport json"], "after the released one"
    assert built(nb).notes == ()


def test_solution_turned_into_markdown():
    result = built(edited(lambda c: c[2].update(cell_type="markdown")))
    assert [c.source for c in result.cells] == [SETUP, RIGHT2]
    assert result.answers["ex1"] == RIGHT1
    assert result.notes == (
        "Cell 3 (exercise 1) is a markdown cell, so its code was not run: turn it back into a "
        "code cell.",
    )


def test_merge_conflict_in_a_cell():
    conflict = f"<<<<<<< HEAD\n{RIGHT1}\n=======\n{STUB1}\n>>>>>>> main"
    result = built(answered(ex1=conflict))
    assert any("Cell 3 holds merge-conflict markers" in note for note in result.notes)
    assert RIGHT2 in [c.source for c in result.cells]


def test_flags_and_points_of_the_submission_count_for_nothing():
    nb = answered()
    for made in nb["cells"]:
        if "nbgrader" in made["metadata"]:
            made["metadata"]["nbgrader"] |= {"grade": True, "solution": False, "points": 1000}
    assert built(nb) == built(answered())


# ---- any notebook --------------------------------------------------------------------------------

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["drop", "copy", "swap", "strip", "markdown"]), st.integers(0, 7)),
    max_size=8,
)


@settings(deadline=None, max_examples=50)
@given(OPERATIONS)
def test_any_mangled_notebook_is_rebuilt(operations):
    """The set-up always runs, the demonstration never, and every note is a sentence."""
    nb = answered()
    for name, number in operations:
        c = nb["cells"]
        if not c:
            break
        i = number % len(c)
        {
            "drop": lambda c=c, i=i: c.pop(i),
            "copy": lambda c=c, i=i: c.append(copy.deepcopy(c[i])),
            "swap": lambda c=c, i=i: c.insert(0, c.pop(i)),
            "strip": lambda c=c, i=i: c[i].update(metadata={}),
            "markdown": lambda c=c, i=i: c[i].update(cell_type="markdown"),
        }[name]()
    result = built(nb)
    ran = [c.source for c in result.cells]
    assert SETUP in ran
    assert not any("SystemExit" in source for source in ran)
    assert all(note[0].isupper() and note.endswith(".") for note in result.notes)


def test_an_empty_notebook():
    result = built(notebook([]))
    assert [c.source for c in result.cells] == [SETUP]
    assert len(result.notes) == 3


def test_code_of_the_student_s_own_is_kept_beside_the_answers():
    nb = answered()
    nb["cells"].insert(2, cell("code", "HELPER = 1"))
    nb["cells"].append(cell("code", "%time\nLATER = 2"))
    kept = verdict.answered(built(nb))
    assert "HELPER = 1" in kept["own"] and "LATER = 2" in kept["own"]
    assert RIGHT1 not in kept["own"] and kept["answers"]["ex1"] == RIGHT1
    nb["cells"].append(cell("code", "x = '" + "y" * 200_000 + "'"))
    assert len(verdict.answered(built(nb))["own"]) < 60_000
