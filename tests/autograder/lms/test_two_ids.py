"""`course grades` where the file's people are graded under other ids, or also under others."""

import shutil

import pytest
from four_students import book, record
from nbcourse import LAB, write

from autograder import cli

ROSTER = """id,name,canvas id
s01,"Müller, Anna",12345
s02,"Okafor, Ben",12346
"""
CANVAS = """Student,ID,SIS User ID,Section,Toy lab (55)
    Points Possible,,,,100.00
"Müller, Anna",12345,u0001,A,
"Okafor, Ben",12346,u0002,A,
"""


@pytest.fixture
def course(released, tmp_path):
    root = tmp_path / "course"
    shutil.copytree(released, root)
    record(root, "s01", "s02", "s03", "s04")
    write(root / "canvas.csv", CANVAS)
    return root


def grades(root, *options):
    run = ["course", "grades", LAB, str(root / "canvas.csv"), str(root / "out.csv")]
    return cli.run([*run, "--column", "Toy lab", "--course", str(root), *options])


@pytest.mark.parametrize("options", [[], ["--roster", "canvas.csv"]], ids=["its own", "given"])
def test_who_is_graded_twice_is_not_uploaded(course, capsys, monkeypatch, options):
    monkeypatch.chdir(course)
    write(course / "roster.csv", ROSTER)
    assert grades(course) == 0
    (course / "out.csv").unlink()
    record(course, "u0001", "u0002", "u0003", "u0004")
    capsys.readouterr()
    assert grades(course, *options) == 2 and not (course / "out.csv").exists()
    err = capsys.readouterr().err
    assert "(u0001 is s01 there, u0002 is s02 there)" in err and "--roster" in err


def test_a_name_alone_is_told(course, capsys):
    with book(course) as gradebook:
        gradebook.update_or_create_student("s01", first_name="Anna", last_name="Müller")
    record(course, "u0001", "u0002", "u0003", "u0004")
    assert grades(course) == 0
    out = capsys.readouterr().out
    assert "by another id, if names are right (u0001 is s01 there)" in out


def test_the_column_is_named_and_another_lab_s_number_told(course, capsys):
    export = CANVAS.replace("u000", "s0").replace("Toy lab", "Lab 6")
    write(course / "canvas.csv", export)
    run = ["course", "grades", LAB, str(course / "canvas.csv"), "--course", str(course)]
    assert cli.run([*run, str(course / "six.csv"), "--column", "Lab 6"]) == 0
    out = capsys.readouterr().out
    assert "points of 2 students, into 'Lab 6 (55)', in the columns of Canvas" in out
    assert f"'Lab 6 (55)' has another number than {LAB}" in out
    write(course / "canvas.csv", export.replace("Lab 6", "lab 00: toys"))
    assert cli.run([*run, str(course / "own.csv"), "--column", "lab 00: toys"]) == 0
    assert "another number" not in capsys.readouterr().out


def test_a_zip_is_no_export(course, capsys):
    write(course / "canvas.csv", b"PK\x03\x04\xff\xfe")
    assert grades(course) == 2
    err = capsys.readouterr().err
    assert "is a zip or a spreadsheet, and a CSV file is wanted" in err


def test_feedback_without_the_roster_asks_for_it(course, capsys):
    with book(course) as gradebook:
        gradebook.update_or_create_student("s01", first_name="Anna", last_name="Müller")
    write(course / "in/muelleranna_12345_900_toy.ipynb", "{}")
    run = ["course", "feedback", LAB, str(course / "in"), str(course / "f.zip")]
    assert cli.run([*run, "--course", str(course)]) == 2
    err = capsys.readouterr().err
    assert "(muelleranna_12345 is s01 there)" in err and "give the --roster" in err
