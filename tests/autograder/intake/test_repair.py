"""One strange cell or byte costs itself: the rest is graded, and a note says what was left out."""

import json

import pytest
from handed_in import reason, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from toylab import answered, cell, write

from autograder.intake.discover import Submission
from autograder.intake.notebook import NotebookError, parse_notebook, read_notebook

WHOLE = parse_notebook(json.dumps(answered()).encode())


def text_of(nb):
    return json.dumps(nb, indent=1)


def with_cell(extra):
    nb = answered()
    nb["cells"].insert(1, extra)
    return text_of(nb).encode()


def with_output(data):
    """The notebook with bytes inside an output that JSON or UTF-8 does not know."""
    nb = answered()
    made = cell("code", "1")
    made["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "MARK"}]
    nb["cells"].append(made)
    return text_of(nb).encode().replace(b"MARK", data)


def old_format():
    cells = []
    for one in answered()["cells"]:
        code = one["cell_type"] == "code"
        source = one["source"]
        cells.append({"cell_type": one["cell_type"], "metadata": one["metadata"]}
                     | ({"input": source, "language": "python", "outputs": [], "collapsed": False}
                        if code else {"source": source}))  # fmt: skip
    cells.append({"cell_type": "heading", "level": 2, "source": "The end", "metadata": {}})
    nb = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}}
    return json.dumps(nb | {"worksheets": [{"cells": cells, "metadata": {}}]}).encode()


PLAIN = text_of(answered())
MENDED = {
    "a cell of an unknown kind": (with_cell({"cell_type": "sql", "source": "x"}), "cell 2 is"),
    "a cell that is a number": (with_cell(17), "cell 2 is neither"),
    "a source that is an object": (with_cell(cell("code", {})), "source of cell 2"),
    "a source with a number": (with_cell(cell("code", ["a", 1])), "source of cell 2"),
    "bytes in an output": (with_output(b"\xff\xfe\x80"), "bytes that are not UTF-8"),
    "a surrogate's bytes in an output": (with_output(b"\xed\xa0\x80"), "bytes that are not UTF-8"),
    "commas before brackets": (
        PLAIN.replace("\n ]", ",\n ]").replace("\n}", ",\n}").encode(), "Commas before closing"),
    "format 3": (old_format(), "format 3"),
}  # fmt: skip
SILENT = {
    "a lone surrogate in an output": with_output(b"\\ud800"),
    "a tab inside a string": with_output(b"a\tb"),
    "UTF-16": PLAIN.encode("utf-16"),
    "a byte order mark": PLAIN.encode("utf-8-sig"),
}


def sources(cells):
    return [(c.kind, c.source, c.grade_id) for c in cells if c.grade_id]


@pytest.mark.parametrize("data, why", MENDED.values(), ids=MENDED)
def test_the_rest_is_graded_and_a_note_says_so(tmp_path, data, why):
    write(tmp_path / "alice" / "toy.ipynb", data)
    row = rows(tmp_path)["alice"]
    assert isinstance(row, Submission), row
    assert sources(row.cells) == sources(WHOLE)
    assert sum(why in note for note in row.notes) == 1, row.notes


@pytest.mark.parametrize("data", SILENT.values(), ids=SILENT)
def test_what_costs_nothing_is_no_note(data):
    cells, notes = read_notebook(data)
    assert sources(cells) == sources(WHOLE) and notes == ()


def test_cells_keep_their_numbers_when_one_is_left_out():
    cells, _ = read_notebook(with_cell({"cell_type": "sql"}))
    assert [c.position for c in cells][:3] == [1, 3, 4]


def test_characters_that_are_no_text_are_replaced_in_their_cell():
    nb = answered(ex1="def scale(numbers, factor):  # M\udcfcller\n    return numbers")
    cells, notes = read_notebook(text_of(nb).encode())
    [number] = [c.position for c in cells if "M\ufffdller" in c.source]
    assert notes == (f"Characters that are no text were replaced by \ufffd: cell {number}.",)
    latin = text_of(nb).replace("\\udcfc", "MARK").encode().replace(b"MARK", b"\xfc")
    again, notes = read_notebook(latin)
    assert again == cells and len(notes) == 2


def test_a_comma_inside_a_string_stays():
    nb = answered(ex1='x = "[1,]"  # \\",]\n')
    whole = text_of(nb).encode()
    data = whole.replace(b"\n ]", b",\n ]")
    assert data != whole and read_notebook(data)[0] == parse_notebook(whole)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_off_says_so(tmp_path, part):
    write(tmp_path / "alice" / "toy.ipynb", PLAIN[: int(len(PLAIN) * part)].encode())
    write(tmp_path / "bob" / "toy.ipynb", PLAIN.encode())
    assert "ends in the middle" in reason(tmp_path)
    assert isinstance(rows(tmp_path)["bob"], Submission)


@settings(deadline=None)
@given(st.integers(1, len(PLAIN) - 2))
def test_no_part_of_a_notebook_is_taken_for_the_whole(length):
    with pytest.raises(NotebookError):
        read_notebook(PLAIN[:length].encode())


def test_many_strange_cells_are_told_in_few_lines():
    nb = answered()
    nb["cells"] += [{"cell_type": "sql"}] * 50
    _, notes = read_notebook(text_of(nb).encode())
    assert len(notes) == 6 and notes[-1] == "Left out: 45 more cells like these."


def test_commas_cannot_cost_much_time():
    """Each of these is read once from left to right, however often a string or comma begins."""
    for data in (b'{"' + b'\\"' * 200_000, b"{" + b"," * 400_000, b'{"a"' + b", " * 200_000):
        with pytest.raises(NotebookError):
            read_notebook(data)
