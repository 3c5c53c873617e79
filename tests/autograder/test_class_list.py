"""`autograder grade --roster --map`: everyone has a row, and only what is known is recorded."""

import pytest
from nbgrader.api import Gradebook
from toylab import NAME, RIGHT1, answered, make_course, write

from autograder import cli
from autograder.grading.results import read_report

ROSTER = """id,name,canvas id
s01,"Müller, Anna",11
s02,Bo Berg,12
s03,Cleo Li,13
"""


@pytest.fixture
def course(tmp_path):
    root = make_course(tmp_path)
    write(root / "roster.csv", ROSTER.encode())
    return root


def grade(root, folder, *options):
    report = root / "results.json"
    arguments = ["grade", NAME, str(root / folder), "--course", str(root), "--json", str(report)]
    code = cli.run([*arguments, *map(str, options)])
    return code, {result.student: result for result in read_report(report).results}


def recorded(root):
    """student -> points of those with a submission, None for the others."""
    with Gradebook(f"sqlite:///{root}/gradebook.db", "efficient-llm") as book:
        handed_in = {one.student.id: one.score for one in book.assignment_submissions(NAME)}
        return {one.id: None for one in book.students} | handed_in


@pytest.mark.slow
def test_a_class_with_a_roster(course, capsys):
    # work of a hundredth of a second at least: times are kept to a thousandth
    slow = f"{RIGHT1}\nwork = sum(range(3 * 10**6))\n"
    write(course / "in/Anna Müller/toy.ipynb", answered(ex1=slow))
    write(course / "in/bergbo_LATE_12_901_toy.ipynb", b"<html>")
    write(course / "in/ghost/toy.ipynb", answered())
    code, results = grade(course, "in", "--roster", course / "roster.csv")
    out = capsys.readouterr().out
    assert code == 0
    assert {name: results[name].status for name in ("s01", "s02", "s03")} == {
        "s01": "graded",
        "s02": "rejected",
        "s03": "missing",
    }
    assert recorded(course) == {"s01": 90, "s02": 0, "s03": None}
    assert "Nothing handed in (1): s03 (Cleo Li)" in out
    told = read_report(course / "results.json")
    assert told.names == {"s01": "Müller, Anna", "s02": "Bo Berg", "s03": "Cleo Li"}
    assert told.late == {} and any(cell.seconds > 0 for cell in results["s01"].cells)
    assert 'Not graded and not in the gradebook (1):\n  "ghost" fits nobody on the roster' in out
    assert "--map" in out
    assert sorted(path.name for path in (course / "feedback").iterdir()) == ["s01", "s02"]

    # a later hand-in takes the empty place; what others have is not touched by their absence
    write(course / "map.csv", b"folder,id\nghost,s03\n")
    write(course / "later/ghost/toy.ipynb", answered())
    options = ("--roster", course / "roster.csv", "--map", course / "map.csv")
    code, results = grade(course, "later", *options)
    assert code == 0 and results["s03"].status == "graded"
    assert recorded(course) == {"s01": 90, "s02": 0, "s03": 90}


@pytest.mark.parametrize("option", ["--roster", "--map"])
def test_a_file_that_is_not_there_is_one_line(course, capsys, option):
    write(course / "in/alice/toy.ipynb", answered())
    arguments = ["grade", NAME, str(course / "in"), "--course", str(course)]
    assert cli.run([*arguments, option, str(course / "none.csv")]) == 2
    told = capsys.readouterr().err
    assert told == "autograder: none.csv cannot be read (No such file or directory)\n"
