"""Canvas's answers stand at the upload that their name says, so it must be one that was graded."""

import shutil
import zipfile
from dataclasses import replace

import nbcourse
import pytest
from nbcourse import LAB, write

from autograder import cli

ROSTER = "id,name,canvas id\ns01,Anna Mueller,11\ns02,Bo Berg,12\n"


@pytest.fixture
def course(released, tmp_path):
    """A course in which uploads 501 and 502 were graded."""
    root = tmp_path / "course"
    shutil.copytree(released, root)
    lab = nbcourse.load(root)
    rows = [
        replace(nbcourse.submission(lab, nbcourse.right(lab), student), sent=("upload", number))
        for student, number in (("s01", 501), ("s02", 502))
    ]
    nbcourse.record(root, lab, [nbcourse.graded(lab, row) for row in rows], rows)
    write(root / "roster.csv", ROSTER)
    return root


def pack(root, *names):
    for name in names:
        write(root / "in" / name, "{}")
    out = root / "feedback.zip"
    code = cli.run(["course", "feedback", LAB, str(root / "in"), str(out), "--course", str(root)])
    return code, zipfile.ZipFile(out).namelist() if out.exists() else []


def test_the_download_of_another_lab_gets_no_feedback_of_this_one(course, capsys):
    assert pack(course, "muelleranna_11_901_paged.ipynb", "bergbo_12_902_paged.ipynb") == (2, [])
    told = capsys.readouterr().err
    assert f"s01: upload 501 was graded for {LAB}" in told and "901_paged.ipynb is)" in told


def test_what_was_not_graded_is_named_and_the_rest_is_packed(course, capsys):
    names = ["muelleranna_11_501_toy.ipynb", "bergbo_12_903_toy-1.ipynb"]
    assert pack(course, *names) == (0, names[:1])
    assert "left out: s02: upload 502 was graded" in capsys.readouterr().out


def test_a_download_with_the_graded_upload_and_a_newer_one_is_answered(course):
    names = ["muelleranna_11_501_toy.ipynb", "muelleranna_11_904_toy-1.ipynb"]
    assert pack(course, *names) == (0, names[1:])
