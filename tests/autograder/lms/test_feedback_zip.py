"""Feedback under the names by which Moodle and Canvas find whose it is."""

import io
import shutil
import zipfile

import nbformat
import pytest
from four_students import book, record
from nbcourse import LAB, write

from autograder import cli

ROSTER = """id,name,canvas id
s01,"Müller, Anna_Maria",11
s02,Bo Berg,12
s03,Cleo Li,13
s04,Dan Du,14
"""


@pytest.fixture
def course(released, tmp_path):
    root = tmp_path / "course"
    shutil.copytree(released, root)
    record(root, "s01", "s02", "s03", "s04")
    write(root / "roster.csv", ROSTER)
    return root


def packed(root, code=0):
    out = root / "feedback.zip"
    arguments = ["course", "feedback", LAB, str(root / "in"), str(out), "--course", str(root)]
    assert cli.run([*arguments, "--roster", str(root / "roster.csv")]) == code
    if not out.exists():
        return None
    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def read_by_moodle(name):
    """(participant, plugin, file) as importziplib.php takes a path of the zip apart."""
    parts = name.split("/")
    while parts:
        info = parts.pop(0).split("_", 4)
        if len(info) >= 4 and info[1].isdigit():
            return int(info[1]), tuple(info[2:4]), "/".join([*info[4:], *parts])
    return None


def read_by_canvas(name):
    """(person, upload) as infer_comment_context_from_filename takes them from a name."""
    return tuple(int(part) for part in name.split("_") if part.isdigit())[:2]


def test_moodle(course, capsys):
    for name in ("Anna Maria Müller_901", "Bo Berg_902", "Cleo Li_903", "Ghost_904"):
        write(course / "in" / f"{name}_assignsubmission_file_" / "toy.ipynb", "{}")
    files = packed(course)
    assert {read_by_moodle(name) for name in files} == {
        (number, ("assignfeedback", "file"), "toy.html") for number in (901, 902, 903)
    }
    page = files["Anna Maria Müller_901_assignfeedback_file_toy.html"].decode()
    assert "<b>s01</b>" in page and "90 of 100 points" in page
    out = capsys.readouterr().out
    assert "feedback of 3 students, in 3 files" in out
    assert 'left out: "Ghost_904_assignsubmission_file_" fits nobody on the roster' in out


def test_canvas_gets_files_of_the_kind_that_was_handed_in(course, capsys):
    names = ["mueller_11_501_toy.ipynb", "mueller_11_502_toy-1.ipynb", "berg_LATE_12_503_my.zip"]
    for name in (*names, "li_13_504_essay.pdf", "du_14_505_toy.ipynb"):
        write(course / "in" / name, "x")
    with book(course) as gradebook:
        grade = gradebook.find_grade("w1", "toy", LAB, "s01")
        grade.manual_score, grade.needs_manual_grade = 8, False
        gradebook.find_submission_notebook("toy", LAB, "s01").late_submission_penalty = 5
        gradebook.find_comment("w1", "toy", LAB, "s01").manual_comment = "Well *seen*. <b>x</b>"
        gradebook.db.commit()
    files = packed(course)
    assert set(files) == {"mueller_11_502_toy-1.ipynb", "berg_LATE_12_503_my.zip"}
    assert {read_by_canvas(name) for name in files} == {(11, 502), (12, 503)}
    nb = nbformat.reads(files["mueller_11_502_toy-1.ipynb"].decode(), as_version=4)
    nbformat.validate(nb)
    assert nb.cells[0].source.startswith("# 93 of 100 points\n\n5 points are taken off")
    assert "- Exercise 1: Scale: 50 of 50\n" in nb.cells[0].source
    assert "- Written question 1: 8 of 10" in nb.cells[0].source
    assert nb.cells[1].source == "Well *seen*. <\u200bb>x<\u200b/b>", "a comment became markup"
    with zipfile.ZipFile(io.BytesIO(files["berg_LATE_12_503_my.zip"])) as archive:
        assert archive.namelist() == ["toy.html"] and b"<b>s02</b>" in archive.read("toy.html")
    out = capsys.readouterr().out
    assert "feedback of 2 students, in 2 files" in out
    assert "left out: s03: no notebook and no zip was handed in" in out and "a comment" in out
    assert f"left out: s04: nothing of {LAB} is recorded" in out


def test_folders_of_one_s_own(course):
    write(course / "in/s01/toy.ipynb", "{}")
    write(course / "in/Bo Berg/toy.ipynb", "{}")
    files = packed(course)
    assert "s01/toy.html" in files and len(files) == 2
    assert all(".." not in name and not name.startswith("/") for name in files)


def test_points_that_came_later_are_in_the_page(course):
    write(course / "in/s01/toy.ipynb", "{}")
    with book(course) as gradebook:
        grade = gradebook.find_grade("w1", "toy", LAB, "s01")
        grade.manual_score, grade.needs_manual_grade = 4, False
        gradebook.db.commit()
    assert b"94 of 100 points" in packed(course)["s01/toy.html"]


def test_the_same_feedback_is_the_same_zip(course):
    write(course / "in/s01/toy.ipynb", "{}")
    packed(course)
    first = (course / "feedback.zip").read_bytes()
    assert packed(course, code=2) is not None, "a zip that is there was written over"
    (course / "feedback.zip").unlink()
    packed(course)
    assert (course / "feedback.zip").read_bytes() == first


METADATA = """---
submission_11:
  :submitters:
  - :name: Anna
    :sid: s01
"""


@pytest.mark.parametrize("files, why", [
    ({"submission_11/toy.ipynb": "{}", "submission_metadata.yml": METADATA},
     "Gradescope takes no feedback files"),
    ({"ghost/toy.ipynb": "{}"}, "there is no feedback for anything"),
])  # fmt: skip
def test_what_cannot_be_packed_is_told_in_one_line(course, capsys, files, why):
    for name, content in files.items():
        write(course / "in" / name, content)
    assert packed(course, code=2) is None
    err = capsys.readouterr().err
    assert why in err and err.count("\n") == 1
