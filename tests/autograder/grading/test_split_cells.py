"""A cell that was split by accident becomes one again; other broken cells stay as they are."""

import json

import pytest
from toylab import RIGHT1, RIGHT2, SETUP, answered, cell, release

from autograder.grading.magics import to_python
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
