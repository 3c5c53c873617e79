"""Grades in the columns of course systems, from files as those systems export them."""

import csv
import shutil

import pytest
from four_students import book, record
from nbcourse import LAB, write

from autograder import cli

CANVAS = """\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,Notes,Toy lab (55),Lab 2 (56),\
Final Score
,,,,,,Manual Posting,,
    Points Possible,,,,,,100.00,10.00,(read only)
"Müller, Anna",12345,s01,amueller,A,x,,9.00,88
"=cmd|' /C calc'!A0",777,s02,sohara,A,,12.00,,
"Zhang, Wei",888,s03,zwei,A,,,,
"Absent, Al",889,s04,al,A,,,,
"Elsewhere, El",890,s09,el,A,,,,
"Student, Test",999,,,A,,,,
"""
CANVAS_OUT = [
    ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Toy lab (55)"],
    ["", "", "", "", "", "Manual Posting"],
    ["    Points Possible", "", "", "", "", "100.00"],
    ["Müller, Anna", "12345", "s01", "amueller", "A", "90"],
    ["'=cmd|' /C calc'!A0", "777", "s02", "sohara", "A", "60"],
    ["Zhang, Wei", "888", "s03", "zwei", "A", "0"],
    ["Absent, Al", "889", "s04", "al", "A", ""],
    ["Elsewhere, El", "890", "s09", "el", "A", ""],
    ["Student, Test", "999", "", "", "A", ""],
]
MOODLE = """Identifier,"Full name","ID number","Email address",Status,Grade,"Maximum grade",\
"Grade can be changed","Last modified (submission)","Last modified (grade)","Feedback comments"
"Participant 123","Anna Müller",s01,anna@uni.edu,Submitted,,100.00,Yes,"Thursday, 1 October",-,
"Participant 124",@SUM(1),s02,sean@uni.edu,Submitted,12.00,100.00,Yes,-,"Friday, 2 October",mine
"Participant 125","Al Absent",s04,al@uni.edu,"No submission",,100.00,Yes,-,-,
"""
GRADESCOPE = """First Name,Last Name,SID,Email,Sections,Total Score
Anna,Müller,s01,anna@uni.edu,A,3
Al,-Absent,s04,al@uni.edu,A,
"""
OWN = "id;name\ns01;Müller, Anna\ns04;+Al\n"
IDS = ("s01", "s02", "s03", "s04")


@pytest.fixture
def course(released, tmp_path):
    root = tmp_path / "course"
    shutil.copytree(released, root)
    record(root, *IDS)
    return root


def filled(root, text, *options):
    """(exit code, lines of the file that came out)"""
    export, out = write(root / "export.csv", text), root / "out.csv"
    code = cli.run(["course", "grades", LAB, str(export), str(out), "--course", str(root),
                    *options])  # fmt: skip
    if not out.exists():
        return code, None
    delimiter = ";" if ";" in text.partition("\n")[0] else ","
    with out.open(encoding="utf-8", newline="") as file:
        return code, list(csv.reader(file, delimiter=delimiter))


def test_canvas(course, capsys):
    code, lines = filled(course, CANVAS, "--column", "Toy lab")
    assert code == 0 and lines == CANVAS_OUT
    out = capsys.readouterr().out
    assert "points of 3 students, into 'Toy lab (55)', in the columns of Canvas" in out
    assert "a person has still to grade answers of 2: s01, s02" in out


@pytest.mark.parametrize(
    "heading", ["Student,ID,SIS Login ID,Section", "LastName,FirstName,ID,SIS Login ID,Section"]
)
def test_canvas_without_ids_of_the_school(released, tmp_path, heading):
    """Ids that grading made of the names of Canvas's files end in Canvas's number."""
    root = tmp_path / "course"
    shutil.copytree(released, root)
    record(root, "muelleranna_12345", "sean_7", "zhangwei-1234567890_12345678", "al_4")
    name = "Müller,Anna" if "LastName" in heading else '"Müller, Anna"'
    empty = "," * heading.count(",")
    text = f"{heading},Toy <lab> (5)\n    Points Possible{empty},100\n{name},12345,amueller,A,\n"
    code, lines = filled(root, text)
    assert code == 0 and lines[-1][-1] == "90" and lines[-1][-2] == "A"


def test_moodle(course):
    code, lines = filled(course, MOODLE)
    assert code == 0
    given = list(csv.reader(MOODLE.replace("\\\n", "").splitlines()))
    given[1][5], given[2][5], given[2][1] = "90", "60", "'@SUM(1)"
    assert lines == given


def test_nothing_that_students_write_is_a_formula(course):
    """Moodle's worksheet has their online texts, Gradescope's roster the SID they gave."""
    text = (
        "Identifier,Full name,ID number,Group,Grade,Last modified (grade),Online text\n"
        'Participant 1,＝1+1,s01,+49,-,-,"=HYPERLINK(""http://x"")"\n'
        'Participant 2,Al,s04,@SUM(1),-5.5,-,"\n-1+1"\n'
    )
    _, [_, one, other] = filled(course, text)
    assert one[1] == "'＝1+1" and one[3:] == ["+49", "90", "-", '\'=HYPERLINK("http://x")']
    assert other[3:] == ["'@SUM(1)", "-5.5", "-", "'\n'-1+1"]
    (course / "out.csv").unlink()
    _, lines = filled(course, "First Name,Last Name,SID,Email\nE,E,=cmd(),e@u.edu\nA,M,s01,\n")
    assert lines[1][2] == "'=cmd()"


EVE = '"\x1b[2JEve",7,s77,A,12\nMüller,8,s01,A,\n'


def test_a_name_sends_nothing_to_the_terminal(course, capsys):
    text = "Student,ID,SIS User ID,Section,Toy lab (55)\n    Points Possible,,,,100\n"
    code, _ = filled(course, text + EVE, "--column", "Toy lab")
    out = capsys.readouterr().out
    assert code == 0 and "?[2JEve" in out and "\x1b" not in out


def test_gradescope(course):
    code, lines = filled(course, GRADESCOPE)
    assert code == 0 and lines == [
        "First Name,Last Name,SID,Email,Sections,Total Score,Max Points,Status".split(","),
        ["Anna", "Müller", "s01", "anna@uni.edu", "A", "90", "100", "Ungraded"],
        ["Al", "'-Absent", "s04", "al@uni.edu", "A", "", "100", "Missing"],
    ]  # fmt: skip


def test_a_roster_of_one_s_own(course, capsys):
    code, lines = filled(course, OWN)
    assert code == 0 and lines == [
        ["id", "name", "points", "of", "taken off", "status"],
        ["s01", "Müller, Anna", "90", "100", "0", "to be graded by a person"],
        ["s04", "'+Al", "", "100", "", "missing"],
    ]
    assert "graded, and not in" in (told := capsys.readouterr().out) and "(2): s02, s03" in told


def test_points_by_hand_and_penalties_are_in_the_grade(course):
    with book(course) as gradebook:
        for student, by_hand in (("s01", 7.5), ("s02", 1)):
            notebook = gradebook.find_submission_notebook("toy", LAB, student)
            grade = gradebook.find_grade("w1", "toy", LAB, student)
            grade.manual_score, grade.needs_manual_grade = by_hand, False
            notebook.late_submission_penalty = 10 if student == "s01" else 1000
        gradebook.db.commit()
    _, lines = filled(course, OWN + "s02;Sean\n")
    assert lines[1][2:] == ["87.5", "100", "10", "graded"]
    assert lines[3][2:4] == ["0", "100"], "points below 0"


WRONG = {
    "no such column": (CANVAS, ["--column", "Lab 3"], "there: 'Notes', 'Toy lab (55)', 'Lab 2"),
    "no column of the lab": (CANVAS, [], "no assignment of the name 'Toy <lab>'"),
    "other points": (CANVAS, ["--column", "Lab 2 (56)"], "is out of 10 points, the lab out of 100"),
    "Canvas's sum": (CANVAS, ["--column", "Final Score"], "no assignment of the name"),
    "no points possible": (CANVAS.replace("Points Possible", "x"), [], "no line 'Points Possible'"),
    "no maximum": (
        CANVAS.replace("100.00", "many"),
        ["--column", "Toy lab"],
        "'many', which is no",
    ),
    "other maximum": (MOODLE.replace("100.00", "10,0"), [], "Maximum grade is out of 10 points"),
    "column of Moodle": (MOODLE, ["--column", "Grade"], "--column is for Canvas's gradebook"),
    "one student twice": (OWN + "S01;x\n", [], "lines 2 and 4 are both s01's"),
    "two students in a line": (
        "id,email\ns01,s02\n",
        [],
        "fits several: s01, s02. If that is one person, take the wrong",
    ),
    "only a heading": ("id,name\n", [], "no student stands in it"),
    "nothing": ("", [], "no student stands in it"),
}


@pytest.mark.parametrize("text, options, why", WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_told_in_one_line(course, capsys, text, options, why):
    code, lines = filled(course, text, *options)
    assert code == 2 and lines is None
    err = capsys.readouterr().err
    assert why in err and err.count("\n") == 1 and "export.csv" in err


KEPT = {
    "Canvas": (CANVAS, ["--column", "Toy lab"], "889,s04,al,A,,,", "889,s04,al,A,,77.00,"),
    "Moodle": (MOODLE, [], '"No submission",,', '"No submission",77.00,'),
    "Gradescope": (GRADESCOPE, [], "al@uni.edu,A,", "al@uni.edu,A,77.00"),
    "a roster": ("id;name;points\ns01;Müller, Anna;1\ns04;Al;\n", [], "Al;", "Al;77.00"),
}


@pytest.mark.parametrize("text, options, empty, score", KEPT.values(), ids=KEPT)
def test_a_score_of_who_handed_in_nothing_stays(course, capsys, text, options, empty, score):
    assert empty in text
    code, lines = filled(course, text.replace(empty, score), *options)
    assert code == 0 and "77.00" in next(line for line in lines if {"s04", "Al"} & set(line))
    assert "the score there stays (1): s04" in capsys.readouterr().out


def test_who_stands_there_by_two_ids_is_the_one_with_a_submission(course):
    with book(course) as gradebook:
        gradebook.update_or_create_student("amueller")
    code, lines = filled(course, CANVAS, "--column", "Toy lab")
    assert code == 0 and lines == CANVAS_OUT


def test_a_file_that_is_there_is_kept(course, capsys):
    write(course / "out.csv", "mine")
    assert filled(course, OWN)[0] == 2
    assert "is there already: name a new file" in capsys.readouterr().err
    assert (course / "out.csv").read_text() == "mine"


def test_a_lab_that_nobody_graded(released, tmp_path, capsys):
    root = tmp_path / "course"
    shutil.copytree(released, root)
    (root / "gradebook.db").unlink(missing_ok=True)
    assert filled(root, OWN)[0] == 2
    assert "grade it first" in capsys.readouterr().err
