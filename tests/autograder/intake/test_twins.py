"""A roster that gives people of the gradebook other ids is refused, whatever shows who they are."""

import pytest
from toylab import NAME, answered, make_course, write

from autograder import cli
from autograder.intake.roster import read_roster
from autograder.intake.twice import named_alike, same_person
from autograder.nbgrader.course import course_directory
from autograder.nbgrader.database import open_gradebook

ROSTER = """id,name,email,login,canvas id
s01,"Müller, Anna",anna@uni.edu,amueller,12345
s02,"Okafor, Ben",ben@uni.edu,bokafor,12346
"""
CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section
"Müller, Anna",12345,u0001,amueller,A
"Okafor, Ben",12346,u0002,bokafor,A
"""
PAIRS = "(u0001 is s01 there, u0002 is s02 there)"


@pytest.fixture
def course(tmp_path):
    root = make_course(tmp_path)
    know(root, s01=("Anna", "Müller"), s02=("Ben", "Okafor"))
    write(root / "in/muelleranna_12345_900_toy.ipynb", answered())
    return root


def know(root, **people):
    with open_gradebook(course_directory(root)) as book:
        for student, (first, last) in people.items():
            book.update_or_create_student(student, first_name=first, last_name=last)


def people_of(root):
    with open_gradebook(course_directory(root)) as book:
        return {one.id for one in book.students}


def refused(root, capsys, *options):
    """What is said where nobody is graded."""
    before = people_of(root)
    run = ["grade", NAME, str(root / "in"), "--course", str(root), *map(str, options)]
    assert cli.run(run) == 2 and people_of(root) == before
    return capsys.readouterr().err


SAME = {
    "the number": ("Student,ID,SIS User ID,SIS Login ID\nX,12345,u0001,a\nY,12346,u0002,b\n"),
    "the login": "id,login\nu0001,amueller\nu0002,BOKAFOR\n",
    "the address": "id,email\nu0001,anna@uni.edu\nu0002,ben@uni.edu\n",
    "the name": "id,name\nu0001,Anna Müller\nu0002,ben okafor\n",
    "all of them": CANVAS,
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_another_roster_than_the_folder_s(course, capsys, text):
    write(course / "roster.csv", ROSTER.encode())
    write(course / "canvas.csv", text.encode())
    err = refused(course, capsys, "--roster", course / "canvas.csv")
    assert PAIRS in err and "give a roster with the gradebook's ids" in err
    assert "nbgrader db student remove s01" in err and err.count("\n") == 1


@pytest.mark.parametrize("command", ["grade", "release"])
def test_a_roster_in_place_of_the_folder_s(course, capsys, command):
    """Only names are left by which to tell; a release enters the class too."""
    write(course / "roster.csv", CANVAS.encode())
    if command == "grade":
        assert PAIRS in refused(course, capsys)
    else:
        before = people_of(course)
        (course / "solutions").mkdir()
        assert cli.run(["release", NAME, "--course", str(course)]) == 2
        assert PAIRS in capsys.readouterr().err and people_of(course) == before


def test_who_is_there_by_both_ids_is_not_graded_on(course, capsys):
    write(course / "roster.csv", ROSTER.encode())
    write(course / "canvas.csv", CANVAS.encode())
    know(course, u0001=("Anna", "Müller"), u0002=("Ben", "Okafor"))
    assert PAIRS in refused(course, capsys, "--roster", course / "canvas.csv")


def test_a_namesake_of_who_has_left_is_told_and_graded(course, capsys):
    text = ROSTER.replace("s01", "s03").replace("12345", "777").replace("amueller", "anna2")
    write(course / "roster.csv", text.replace("anna@", "anna2@").encode())
    write(course / "in/muelleranna_12345_900_toy.ipynb", b"<html>")
    (course / "in/muelleranna_12345_900_toy.ipynb").rename(course / "in/s03.ipynb")
    assert cli.run(["grade", NAME, str(course / "in"), "--course", str(course)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "of the same name has another id (s03 is s01 there)" in out


NAMESAKES = {
    "two on the roster": "id,name\nu1,Anna Müller\nu2,Anna Müller\n",
    "she is on the roster": "id,name\nu1,Anna Müller\ns01,Ben Okafor\n",
    "another number": "id,name,canvas id\nu1,Anna Müller,999\n",
    "another address": "id,name,email\nu1,Anna Müller,another@uni.edu\n",
}


@pytest.mark.parametrize("text", NAMESAKES.values(), ids=NAMESAKES)
def test_two_people_of_one_name_are_two(tmp_path, text):
    before = read_roster(write(tmp_path / "a.csv", ROSTER.encode()))
    people = read_roster(write(tmp_path / "b.csv", text.encode()))
    assert named_alike(people, {"s01": "Anna Müller"}, before) == {}
    assert not any(same_person(one, before["s01"]) for one in people.values() if one.id != "s01")


def test_two_of_one_name_in_the_gradebook_are_nobody(tmp_path):
    people = read_roster(write(tmp_path / "b.csv", b"id,name\nu1,Anna Berg\n"))
    assert named_alike(people, {"s01": "Anna Berg"}) == {"u1": "s01"}
    assert named_alike(people, {"s01": "Anna Berg", "s02": "Berg, Anna"}) == {}
