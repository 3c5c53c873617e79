"""A cell that was split by accident becomes one again; other broken cells stay as they are."""

import json

import pytest
from toylab import RIGHT1, RIGHT2, SETUP, answered, cell, release

from autograder.grading import magics
from autograder.grading.magics import MAX_NOTEBOOK_WORK, Reader, to_python
from autograder.grading.rebuild import rebuild
from autograder.intake.notebook import parse_notebook

RELEASE = parse_notebook(json.dumps(release()).encode())


def built(nb):
    return rebuild(parse_notebook(json.dumps(nb).encode()), RELEASE)


def sources(nb):
    return [c.source for c in built(nb).cells]


def edited(edit, **answers):
    nb = answered(**answers)
    edit(nb["cells"])
    return nb


LINES = [
    "def scale(numbers, factor):",
    "    out = []",
    "    for x in numbers:",
    "        out.append(x * factor)",
    "    return out",
]
LONG = "\n".join(LINES)


@pytest.mark.parametrize("cut", range(1, len(LINES)))
@pytest.mark.parametrize("keeps_id", [True, False])
def test_a_cell_split_anywhere_is_joined(cut, keeps_id):
    first, second = "\n".join(LINES[:cut]), "\n".join(LINES[cut:])
    other = cell("code", second, "ex1" if keeps_id else None, "s", cell_id="new")
    result = built(edited(lambda c: c.insert(3, other), ex1=first))
    joined = [c.source for c in result.cells if c.source == LONG]
    if keeps_id or not parses_alone(second):
        assert joined == [LONG]
        assert "Cells 3 and 4 are parts of one cell: they were joined." in result.notes


def parses_alone(source):
    """Python without its indentation: such a cell of the student's own is left as it is."""
    try:
        compile(to_python(source)[0], "x", "exec")
    except SyntaxError:
        return False
    return True


def test_split_in_three_with_text_between():
    parts = ["\n".join(LINES[:2]), "\n".join(LINES[2:4]), "\n".join(LINES[4:])]

    def edit(c):
        c[2:3] = [cell("code", part, "ex1", "s", cell_id=f"p{i}") for i, part in enumerate(parts)]
        c.insert(4, cell("markdown", "between"))

    assert LONG in sources(edited(edit))


def test_a_broken_scratch_cell_stays_apart():
    nb = edited(lambda c: c.insert(3, cell("code", "def broken(")))
    assert sources(nb) == [SETUP, RIGHT1, "def broken(", RIGHT2]
    assert built(nb).notes == ()


@pytest.mark.parametrize("magic", ["%%bash", "%%writefile x.py", "# mine\n%%time", "%%"])
@pytest.mark.parametrize("where", [2, 3])
def test_a_cell_with_a_cell_magic_is_never_joined(magic, where):
    def edit(c):
        c[3:3] = [cell("code", "scale(\n")]
        c.insert(where, cell("code", f"{magic}\necho hello"))

    nb = edited(edit)
    assert RIGHT1 in sources(nb)
    assert not any("joined" in note for note in built(nb).notes)


# ---- what cannot be mended costs a bounded amount of work ---------------------------------------

BROKEN = "def scale(numbers, factor):\n" + "    x = [n for n in numbers]\n" * 40 + "    return (x\n"


@pytest.fixture
def reads(monkeypatch):
    """Characters that IPython and the parser were given, cell by cell."""
    seen = {"transform": [], "syntax_error": []}
    for name in seen:
        original = getattr(magics, name)

        def counted(source, original=original, name=name):
            seen[name].append(len(source))
            return original(source)

        monkeypatch.setattr(magics, name, counted)
    return seen


def broken_copies(number, source=BROKEN):
    texts = [f"{source}# {i}" for i in range(number)]
    copies = [cell("code", text, "ex1", "s", cell_id=f"c{i}") for i, text in enumerate(texts)]
    return edited(lambda c: c.__setitem__(slice(3, 3), copies))


def test_broken_copies_without_magics_are_not_given_to_ipython(reads):
    built(broken_copies(50))
    assert reads["transform"] == []
    assert sum(reads["syntax_error"]) <= 2 * 50 * 25 * len(BROKEN), "9 windows of 2 to 4 a cell"


@pytest.mark.parametrize("source", [BROKEN, "%time x = 1\n" * 30 + BROKEN])
def test_the_work_of_a_notebook_is_bounded(reads, source):
    result = built(broken_copies(600, source))
    assert sum(reads["syntax_error"]) <= 3 * MAX_NOTEBOOK_WORK
    assert sum(reads["transform"]) * (30 if "%" in source else 1) <= MAX_NOTEBOOK_WORK
    assert RIGHT1 in [c.source for c in result.cells], "cells that are left alone still run"
    assert any("more to read" in note for note in result.notes)


def test_a_reader_that_has_no_time_left_hands_cells_on():
    assert Reader(left=3)("%time x = 1") == ("%time x = 1", (), False, False)
