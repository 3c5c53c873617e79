"""A roster says who is in the class; names fit one student, or a sentence asks whose they are."""

import pytest
from handed_in import GOOD, LAB
from hypothesis import given, settings
from hypothesis import strategies as st
from toylab import answered, write

from autograder.errors import UsageError
from autograder.intake.discover import IntakeError, Submission, discover
from autograder.intake.names import safe_id
from autograder.intake.roster import read_map, read_roster
from autograder.intake.twice import namesakes, renamed

OWN = """id,name,email,canvas id,login
s01,"Müller, Anna",anna.mueller@uni.edu,12345,amueller
s02,Sean O'Hara,sean@uni.edu,777,
s03,张伟,zhang@uni.edu,888,zwei
s04,Anna Schmidt,a.schmidt@uni.edu,999,aschmidt
"""
CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Lab 1 (55)
    Points Possible,,,,,100
"Müller, Anna",12345,s01,amueller,A,
"O'Hara, Sean",777,s02,sohara,A,
"Student, Test",999999,,,A,
"""
CANVAS_GROUPS = """name,canvas_user_id,user_id,login_id,sections,group_name
"Müller, Anna",12345,s01,amueller,A,
"O'Hara, Sean",777,s02,sohara,A,
"""
MOODLE = """Identifier,"Full name","ID number","Email address",Status,Grade
"Participant 123","Anna Müller",s01,anna@uni.edu,Submitted,
"Participant 124","Sean O'Hara",s02,sean@uni.edu,"No submission",
"""
MOODLE_PEOPLE = """"First name";"Surname";"ID number";"Email address"
Anna;Müller;s01;anna@uni.edu
Sean;O'Hara;s02;sean@uni.edu
"""
GRADESCOPE = """First Name,Last Name,SID,Email,Sections
Anna,Müller,s01,anna@uni.edu,A
Sean,O'Hara,s02,sean@uni.edu,A
"""
EXPORTS = [OWN, CANVAS, CANVAS_GROUPS, MOODLE, MOODLE_PEOPLE, GRADESCOPE]


def roster(tmp_path, text=OWN):
    return read_roster(write(tmp_path / "roster.csv", text.encode()))


def graded(tmp_path, *names, roster, mapping=None):
    """Row of every student, when each name (a folder, or a file) was handed in."""
    for name in names:
        path = tmp_path / "all" / name
        write(path if name.endswith(".ipynb") else path / "toy.ipynb", GOOD)
    found = discover(tmp_path / "all", LAB, roster, mapping)
    assert len({row.student for row in found}) == len(found)
    return {row.student: row for row in found}


@pytest.mark.parametrize("text", EXPORTS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_rosters_as_systems_export_them(tmp_path, text, encoding):
    people = read_roster(
        write(tmp_path / "roster.csv", text.replace("\n", "\r\n").encode(encoding))
    )
    assert list(people)[:2] == ["s01", "s02"]
    assert len(people) == (4 if text is OWN else 2)
    for name in ("muelleranna_12345_1_toy.ipynb", "Sean O'Hara_124_assignsubmission_file_"):
        row = graded(tmp_path, name, roster=people)
    assert isinstance(row["s01"], Submission) and isinstance(row["s02"], Submission)


def test_canvas_s_test_student_changes_nobody_s_id(tmp_path):
    """Canvas gives it a login of 40 digits, and no id of the school."""
    text = CANVAS.replace('"Student, Test",999999,,,A,', f'"Student, Test",999999,,{"0f" * 20},A,')
    people = roster(tmp_path, text)
    assert list(people) == ["s01", "s02"] and people.column == "SIS User ID" and people.why == ""


def test_a_roster_says_which_column_the_ids_are(tmp_path):
    people = roster(tmp_path, CANVAS.replace("777,s02", "777,"))
    assert list(people) == ["amueller", "sohara"] and people.column == "SIS Login ID"
    assert people.why == "'SIS User ID' is empty in line 4"
    assert roster(tmp_path).column == "id"


KNOWN = {
    "login": ("amueller", {"s01"}),
    "e-mail": ("sean@uni.edu", {"s02"}),
    "Canvas's name of a file": ("ohara_777", {"s02"}),
    "Moodle's name": (safe_id("Anna Müller"), {"s01"}),
    "another person": ("x_12", set()),
    "the same id": ("S01", set()),
}


@pytest.mark.parametrize("known, found", KNOWN.values(), ids=KNOWN)
def test_people_whom_the_gradebook_knows_by_another_id(tmp_path, known, found):
    people = roster(tmp_path)
    assert renamed(people, [known, "s09"]) == {student: known for student in found}
    assert renamed(people, [known, *people]) == {}, "both are there: it cannot become worse"


def test_hand_ins_of_people_whom_the_gradebook_knows_by_name(tmp_path):
    known = {"s01": "Anna Müller", "s02": "Sean O'Hara", "s03": ""}
    assert namesakes({"muelleranna_12345": ""}, known) == {"muelleranna_12345": "s01"}
    assert namesakes({"x-1234567890": "O'Hara, Sean"}, known) == {"x-1234567890": "s02"}
    assert namesakes({"s01": "", "bob": "", "x": "Bo Berg"}, known) == {}


NAMES = {
    "s01": ["s01", "S01", "amueller", "Anna.Mueller@uni.edu", "anna.mueller", "Anna Müller",
            "anna mueller", "Mu\u0308ller, Anna", "Müller_Anna", "muelleranna_12345_1_toy.ipynb",
            "other_12345_1_toy.ipynb", "Anna Müller_7_assignsubmission_file_"],
    "s02": ["o'hara sean", "O\u2019Hara, Sean", "Sean OHara", "oharasean_777_1_toy.ipynb"],
    "s03": ["张伟", "zwei", "张伟_125_assignsubmission_file_", "zhang@uni.edu.ipynb"],
}  # fmt: skip


@pytest.mark.parametrize("student, name", [(s, n) for s, names in NAMES.items() for n in names])
def test_names_that_fit_one_student(tmp_path, student, name):
    found = graded(tmp_path, name, roster=roster(tmp_path))
    assert isinstance(found[student], Submission), found
    assert {row.status for key, row in found.items() if key != student} == {"missing"}


def test_who_handed_in_nothing_has_a_row(tmp_path):
    found = graded(tmp_path, "s01", roster=roster(tmp_path))
    assert isinstance(found.pop("s01"), Submission)
    assert [(row.student, row.reason, row.name) for row in found.values()] == [
        ("s02", "nothing handed in", "Sean O'Hara"),
        ("s03", "nothing handed in", "张伟"),
        ("s04", "nothing handed in", "Anna Schmidt"),
    ]


@pytest.mark.parametrize("name", ["ghost", "Anna Maria Müller", "Anna", "x_55_66_toy.ipynb"])
def test_a_name_that_fits_nobody_is_asked_about(tmp_path, name):
    found = graded(tmp_path, name, "s01", roster=roster(tmp_path))
    [row] = [row for row in found.values() if getattr(row, "status", "") == "unclear"]
    assert name in row.reason and "fits nobody on the roster" in row.reason
    assert "--map" in row.reason and row.student.startswith("unclear-")


def test_a_name_that_fits_several_is_asked_about(tmp_path):
    people = roster(tmp_path, "id,name\na1,Anna Müller\na2,Müller Anna\nb,Bo\n")
    found = graded(tmp_path, "Anna Müller", roster=people)
    [row] = [row for row in found.values() if row.status == "unclear"]
    assert "fits several students on the roster (a1, a2)" in row.reason


def test_a_number_that_belongs_to_another_is_never_outvoted_by_a_name(tmp_path):
    people = roster(tmp_path, "id,name,canvas id\na1,Anna Müller,1\na2,Bo Berg,2\n")
    found = graded(tmp_path, "muelleranna_3_9_toy.ipynb", roster=people)
    assert found["a1"].status == "missing"
    found = graded(tmp_path, "muelleranna_2_9_toy.ipynb", roster=people)
    assert isinstance(found["a2"], Submission)


def test_a_map_decides(tmp_path):
    text = "folder,id\nghost,s02\nAnna/,s04\nx_55_66_toy.ipynb,s03\nelsewhere,s01\n"
    people = roster(tmp_path)
    mapping = read_map(write(tmp_path / "map.csv", text.encode()), people)
    names = ("ghost", "Anna", "x_55_66_toy.ipynb", "s01")
    found = graded(tmp_path, *names, roster=people, mapping=mapping)
    assert set(found) == set(people)
    assert all(isinstance(row, Submission) for row in found.values())
    alone = graded(tmp_path, roster=None, mapping=read_map(tmp_path / "map.csv", None))
    assert set(alone) == set(people)


def test_two_folders_of_one_student_are_asked_about(tmp_path):
    write(tmp_path / "all" / "amueller" / "toy.ipynb", answered(ex1="pass"))
    found = graded(tmp_path, "s01", roster=roster(tmp_path))
    assert found["s01"].status == "unclear"
    assert "s01/toy.ipynb" in found["s01"].reason and "amueller/toy.ipynb" in found["s01"].reason


WRONG = {
    "nothing": ("", "no student stands in it"),
    "only a heading": ("id,name\n", "no student stands in it"),
    "no id": ("name,group\nAnna,1\n", "add one with the heading id"),
    "an empty id": ("id,name\ns01,A\n,B\n", "line 3: no student id"),
    "no id at all": ("id,name\na b,A\n", "line 2: 'a b' is not a student id (letters"),
    "twice": ("id,name\ns01,A\nS01,B\n", "line 3: the id S01 stands there a second time"),
    "binary": ("id\n\0\1\n", "line 2"),
}


@pytest.mark.parametrize("text, why", WRONG.values(), ids=WRONG)
def test_a_roster_that_does_not_do_says_where_and_why(tmp_path, text, why):
    with pytest.raises(UsageError) as told:
        roster(tmp_path, text)
    assert why in str(told.value) and "roster.csv" in str(told.value)
    assert "\n" not in str(told.value)


def test_files_that_are_no_csv(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    write(tmp_path / "latin.csv", "id,name\ns01,Müller\n".encode("latin-1"))
    for name, why in (("none.csv", "No such file"), ("folder.csv", "not a regular file"),
                      ("latin.csv", "save it as 'CSV UTF-8'")):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            read_roster(tmp_path / name)


MAPS = {
    "no columns": ("a,b\n1,2\n", "columns folder,id"),
    "no id": ("folder,id\nx,\n", "line 2: no student id"),
    "not on the roster": ("folder,id\nx,s99\n", "line 2: s99 is not on the roster"),
    "two": ("folder,id\nx,s01\nx,s02\n", "line 3: x is mapped to two students"),
}


@pytest.mark.parametrize("text, why", MAPS.values(), ids=MAPS)
def test_a_map_that_does_not_do_says_where_and_why(tmp_path, text, why):
    with pytest.raises(UsageError, match=why):
        read_map(write(tmp_path / "map.csv", text.encode()), roster(tmp_path))


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_roster_or_one_sentence(tmp_path_factory, data):
    path = write(tmp_path_factory.getbasetemp() / "any.csv", b"id,name\n" + data)
    try:
        people = read_roster(path)
    except UsageError as error:
        assert str(error)
    else:
        assert people


def test_headings_of_no_roster_are_named(tmp_path):
    path = write(tmp_path / "bad.csv", "nr,vorname,nachname\n1,Anna,Müller\n".encode())
    with pytest.raises(UsageError, match=r"headings \(nr, vorname, nachname\).*id is needed"):
        read_roster(path)


def test_hand_ins_that_do_not_exist(tmp_path):
    with pytest.raises(IntakeError, match="nothing.zip does not exist"):
        discover(tmp_path / "nothing.zip", LAB)
