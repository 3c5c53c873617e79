"""Files that are no notebook, links, devices, hostile zips: a reason for that one student."""

import json
import os
import stat

import pytest
from handed_in import GOOD, LAB, reason, rows, zipped
from hypothesis import given, settings
from hypothesis import strategies as st
from toylab import NAME, answered, cell, notebook, write

from autograder.intake.archive import EntryError, unzip
from autograder.intake.discover import Rejected, Submission, discover, read_submission
from autograder.intake.notebook import (
    MAX_NOTEBOOK_BYTES,
    NotebookError,
    notebook_digest,
    parse_notebook,
)

# ---- what is in the file ------------------------------------------------------------------------

DEEP = b'{"cells":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
MANY = json.dumps(notebook([cell("code", "")] * 100_000)).encode()
CONFLICT = b"<<<<<<< HEAD\n" + GOOD + b"\n=======\n" + GOOD + b"\n>>>>>>> main\n"
BAD_FILES = {
    "empty": (b"", "empty"),
    "blank": (b" \n", "empty"),
    "not json": (b"print('hello')", "not JSON"),
    "merge conflict": (CONFLICT, "merge-conflict"),
    "null bytes": (b"\x00" * 1000, "not JSON"),
    "binary": (bytes(range(256)), "UTF-8"),
    "html": (b"<!DOCTYPE html><html>sign in</html>", "not JSON"),
    "deep": (DEEP, "nested too deeply"),
    "deep objects": (b'{"a":' * 200_000, "nested too deeply"),
    "10^5 cells": (MANY, "100000 cells"),
    "a number": (b"17", "no list of cells"),
    "old format": (b'{"worksheets": [{"cells": []}]}', "no list of cells"),
    "cells are numbers": (b'{"cells": [1]}', "cell 1 is neither"),
    "source is a dict": (b'{"cells": [{"cell_type": "code", "source": {}}]}', "source of cell 1"),
    "too much source": (
        json.dumps(notebook([cell("code", "#" * 3_000_000)])).encode(),
        "characters",
    ),
    "huge": (b'{"cells": []' + b" " * MAX_NOTEBOOK_BYTES + b"}", "larger than 20 MB"),
}


@pytest.mark.parametrize("content, why", BAD_FILES.values(), ids=BAD_FILES)
def test_bad_file_is_that_students_row(tmp_path, content, why):
    write(tmp_path / "alice/toy.ipynb", content)
    write(tmp_path / "bob/toy.ipynb", GOOD)
    assert why in reason(tmp_path)
    assert isinstance(rows(tmp_path)["bob"], Submission)


def test_student_without_any_notebook(tmp_path):
    (tmp_path / "alice").mkdir()
    write(tmp_path / "bob/toy.py", b"x = 1")
    (tmp_path / "carol" / NAME).mkdir(parents=True)
    assert {row.student for row in discover(tmp_path, LAB)} == {"alice", "bob", "carol"}
    (tmp_path / "carol" / NAME).rmdir()
    assert "no notebook" in reason(tmp_path) and "no notebook" in reason(tmp_path, "bob")


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_cells_or_a_reason(data):
    try:
        parse_notebook(data)
    except NotebookError as error:
        assert str(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["cells", "cell_type", "source", "metadata", "nbgrader", "grade_id", "id"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)
CELL = st.fixed_dictionaries(
    {"cell_type": st.sampled_from(["code", "markdown"]), "source": st.text() | JSON},
    optional={"metadata": JSON, "id": JSON},
)


@settings(deadline=None)
@given(JSON | st.fixed_dictionaries({"cells": st.lists(CELL | JSON, max_size=3)}))
def test_any_json_is_cells_or_a_reason(content):
    try:
        cells = parse_notebook(json.dumps(content).encode())
    except NotebookError as error:
        assert str(error)
    else:
        assert len(notebook_digest(cells)) == 64
        assert all(isinstance(c.source, str) and c.source.encode() is not None for c in cells)


def test_only_cells_count_for_the_digest():
    plain, run = answered(), answered()
    run["metadata"] = {"kernelspec": {"name": "julia"}, "widgets": {"x": "y" * 10_000}}
    for number, made in enumerate(c for c in run["cells"] if c["cell_type"] == "code"):
        made["outputs"], made["execution_count"] = [{"output_type": "error"}], number
        made["source"] = made["source"].splitlines(keepends=True)
    digests = [notebook_digest(parse_notebook(json.dumps(nb).encode())) for nb in (plain, run)]
    assert digests[0] == digests[1]
    other = notebook_digest(parse_notebook(json.dumps(answered(w1="no")).encode()))
    assert other != digests[0]


# ---- links, devices, zips -----------------------------------------------------------------------


def test_links_are_never_followed(tmp_path):
    secret = write(tmp_path / "secret" / "solution.ipynb", GOOD)
    root = tmp_path / "all"
    (root / "alice").mkdir(parents=True)
    (root / "alice" / "toy.ipynb").symlink_to(secret)
    (root / "bob").symlink_to(secret.parent)
    (root / "carol.ipynb").symlink_to(secret)
    (root / "dave" / "sub").mkdir(parents=True)
    (root / "dave" / "sub" / "link").symlink_to(secret.parent)
    for student in ("alice", "bob", "carol", "dave"):
        assert "symbolic link" in reason(root, student)
    row = read_submission(root / "carol.ipynb", "carol", LAB)
    assert isinstance(row, Rejected)


def test_a_link_beside_the_notebook_does_no_harm(tmp_path):
    write(tmp_path / "alice/toy.ipynb", GOOD)
    (tmp_path / "alice" / "data").symlink_to("/etc")
    assert isinstance(rows(tmp_path)["alice"], Submission)


def test_a_link_for_the_lab_folder_is_a_row(tmp_path):
    write(tmp_path / "bob" / NAME / "toy.ipynb", GOOD)
    (tmp_path / "alice").mkdir()
    (tmp_path / "alice" / NAME).symlink_to(tmp_path / "bob" / NAME)
    assert "symbolic link" in reason(tmp_path)


def test_a_pipe_does_not_block(tmp_path):
    (tmp_path / "alice").mkdir()
    os.mkfifo(tmp_path / "alice" / "toy.ipynb")
    assert "not a regular file" in reason(tmp_path)


BAD_ZIPS = {
    "zip-slip": (zipped({"../../evil.ipynb": GOOD, "toy.ipynb": GOOD}), "leaves its folder"),
    "absolute": (zipped({"/etc/evil.ipynb": GOOD}), "leaves its folder"),
    "backslash": (zipped({"..\\evil.ipynb": GOOD}), "leaves its folder"),
    "drive": (zipped({"C:/evil.ipynb": GOOD}), "leaves its folder"),
    "link": (zipped({"toy.ipynb": (b"/etc/passwd", stat.S_IFLNK | 0o777)}), "a link"),
    "bomb": (zipped({"toy.ipynb": b"\0" * 300_000_000}), "larger than 20 MB"),
    "not a zip": (b"PK\x03\x04 but no more", "not a zip archive"),
    "cut off": (zipped({"toy.ipynb": GOOD})[:-30], "not a zip archive"),
    "without notebook": (zipped({"toy.py": b"x"}), "no notebook"),
    "many notebooks": (zipped({f"{i}.ipynb": GOOD for i in range(50)}), "50 notebooks"),
}


@pytest.mark.parametrize("content, why", BAD_ZIPS.values(), ids=BAD_ZIPS)
def test_bad_zip_is_that_students_row(tmp_path, content, why):
    write(tmp_path / "all/alice.zip", content)
    write(tmp_path / "all/bob.zip", zipped({"toy.ipynb": GOOD}))
    before = {path for path in tmp_path.rglob("*")}
    assert why in reason(tmp_path / "all")
    assert isinstance(rows(tmp_path / "all")["bob"], Submission)
    assert {path for path in tmp_path.rglob("*")} == before, "something was unpacked"


def test_damaged_member_and_encrypted_member():
    good = bytearray(zipped({"toy.ipynb": GOOD}))
    middle = good.index(b"toy.ipynb") + 40
    good[middle : middle + 20] = b"\xff" * 20
    locked = bytearray(zipped({"toy.ipynb": GOOD}))
    locked[6] |= 1  # the flag "encrypted", here and in the central directory
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    for data in (good, locked):
        [entry] = unzip(bytes(data), "x.zip")
        with pytest.raises(EntryError, match="cannot be unpacked"):
            entry.read(10**6)


@settings(deadline=None)
@given(st.data())
def test_a_damaged_zip_is_read_or_refused(data):
    """Any three bytes changed: entries, or EntryError, and never more than asked for."""
    raw = bytearray(zipped({"alice/toy.ipynb": GOOD, "b.ipynb": b"{}"}))
    for _ in range(3):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        for entry in unzip(bytes(raw), "x.zip"):
            assert len(entry.read(5000)) <= 5000
    except EntryError as error:
        assert str(error)
