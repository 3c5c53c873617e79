"""`autograder grade --roster --map`: everyone has a row, and only what is known is recorded."""

import shutil
from datetime import datetime, timedelta

import pytest
from nbgrader.api import Gradebook
from toylab import NAME, RIGHT1, answered, make_course, write

from autograder import cli
from autograder.grading.results import read_report
from autograder.intake.terms import Terms, write_terms

ROSTER = """id,name,canvas id
s01,"Müller, Anna",11
s02,Bo Berg,12
s03,Cleo Li,13
"""


@pytest.fixture
def course(tmp_path):
    root = make_course(tmp_path)
    write(root / "people.csv", ROSTER.encode())
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
    code, results = grade(course, "in", "--roster", course / "people.csv")
    out = capsys.readouterr().out
    assert code == 1, "ghost's work was graded for nobody"
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
    options = ("--roster", course / "people.csv", "--map", course / "map.csv")
    code, results = grade(course, "later", *options)
    assert code == 0 and results["s03"].status == "graded"
    assert recorded(course) == {"s01": 90, "s02": 0, "s03": 90}
    out = capsys.readouterr().out
    assert "Not here, and graded before (2): s01 (Müller, Anna), s02 (Bo Berg)" in out
    assert "Nothing handed in" not in out
    assert (results["s01"].score, results["s01"].exercises != ()) == (90, True)
    assert results["s02"].status == "rejected", "--json lost those who are not in this download"


@pytest.mark.slow
def test_an_older_download_changes_neither_grade_nor_json(course, capsys):
    write(course / "new/bergbo_12_901_toy.ipynb", answered())
    write(course / "old/bergbo_12_900_toy.ipynb", answered(ex1="def scale(n, f):\n    return 0"))
    assert grade(course, "new", "--roster", course / "people.csv")[1]["s02"].score == 90
    capsys.readouterr()
    for _ in range(2):
        _, results = grade(course, "old", "--roster", course / "people.csv")
        out = capsys.readouterr().out
        assert "s02: a newer hand-in is graded (901; this one is 900): its 90 of 90" in out
        assert "->" not in out and results["s02"].score == 90 and recorded(course)["s02"] == 90
    shutil.rmtree(course / "build")
    _, results = grade(course, "old", "--roster", course / "people.csv")
    assert "s02" not in results and recorded(course)["s02"] == 90
    assert "s02: graded before, and without details now" in capsys.readouterr().out
    _, results = grade(course, "old", "--roster", course / "people.csv", "--older")
    assert results["s02"].score == recorded(course)["s02"] == 40


def test_a_name_on_the_roster_sends_nothing_to_the_terminal(course, capsys):
    write(course / "people.csv", (ROSTER + "s04,\x1b]0;mine\x07Eve,14\n").encode())
    write(course / "in/s01.ipynb", b"{")
    grade(course, "in", "--roster", course / "people.csv")
    out = capsys.readouterr().out
    assert "s04 (?]0;mine?Eve)" in out and "\x1b" not in out and "\x07" not in out


# ---- the ids of a gradebook stay ----------------------------------------------------------------


def know(root, **people):
    with Gradebook(f"sqlite:///{root}/gradebook.db", "efficient-llm") as book:
        for student, (first, last) in people.items():
            book.update_or_create_student(student, first_name=first, last_name=last)


def refused(root, folder, *options):
    """What is said where nothing is graded and nobody is added."""
    before = recorded(root)
    arguments = ["grade", NAME, str(root / folder), "--course", str(root)]
    assert cli.run([*arguments, *map(str, options)]) == 2
    assert recorded(root) == before
    return True


def test_a_roster_with_other_ids_is_refused(course, capsys):
    know(course, s01=("Anna", "Müller"), s02=("Bo", "Berg"))
    text = "Student,ID,SIS User ID,SIS Login ID\nM,11,s01,am\nB,12,s02,bb\nN,14,,nn\n"
    write(course / "canvas.csv", text.encode())
    write(course / "in/am/toy.ipynb", answered())
    assert refused(course, "in", "--roster", course / "canvas.csv")
    err = capsys.readouterr().err
    assert "ids are the column 'SIS Login ID' ('SIS User ID' is empty in line 4)" in err
    assert "knows 2 of them by other ids (am is s01 there, bb is s02 there)" in err
    assert "give a roster with the gradebook's ids" in err


def test_a_forgotten_roster_is_told(course, capsys):
    know(course, s01=("Anna", "Müller"), s02=("Bo", "Berg"))
    write(course / "in/muelleranna_11_900_toy.ipynb", b"{}")
    assert refused(course, "in")
    err = capsys.readouterr().err
    assert "(muelleranna_11 is s01 there)" in err and "--roster" in err and "--map" in err


def test_strangers_are_told_and_a_map_settles_it(course, capsys):
    know(course, s01=("Anna", "Müller"))
    write(course / "in/xy12/toy.ipynb", b"<html>")
    assert grade(course, "in")[0] == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Nobody here (1) is among the people of the gradebook (1)" in out
    write(course / "map.csv", b"folder,id\nmuelleranna_11,s07\n")
    write(course / "in2/muelleranna_11_900_toy.ipynb", b"<html>")
    assert grade(course, "in2", "--map", course / "map.csv")[0] == 0
    assert "Nobody here" not in capsys.readouterr().out


def test_a_roster_is_told_with_extensions_of_nobody(course, capsys):
    write(course / "in/s01/toy.ipynb", b"<html>")
    due = datetime(2026, 10, 1)
    write_terms(course, {NAME: Terms(due, 0.0, {"s1": due + timedelta(days=1)})})
    grade(course, "in", "--roster", course / "people.csv")
    out = " ".join(capsys.readouterr().out.split())
    assert "people.csv: 3 students, whose ids are the column 'id'" in out
    assert f"for nobody on the roster: s1 (autograder course extend {NAME} ID none" in out


@pytest.mark.parametrize("option", ["--roster", "--map"])
def test_a_file_that_is_not_there_is_one_line(course, capsys, option):
    write(course / "in/alice/toy.ipynb", answered())
    arguments = ["grade", NAME, str(course / "in"), "--course", str(course)]
    assert cli.run([*arguments, option, str(course / "none.csv")]) == 2
    told = capsys.readouterr().err
    assert told == "autograder: none.csv cannot be read (No such file or directory)\n"
