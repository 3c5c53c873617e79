"""Names by which a student got lost, or became another one, without a word."""

import json

import pytest
from handed_in import GOOD, LAB, zipped
from toylab import NAME, answered, write

from autograder.intake.discover import Submission, discover
from autograder.intake.names import safe_id
from autograder.intake.notebook import notebook_digest, parse_notebook
from autograder.intake.roster import Roster, person

OTHER = json.dumps(answered(ex1="def scale(numbers, factor):\n    return numbers")).encode()
AT = "attempt_2026-10-01-12-00-00"


def roster(*people):
    return Roster({one["id"]: person(one["id"], one) for one in people})


def found(path, *arguments):
    return {row.student: row for row in discover(path, LAB, *arguments)}


def graded(rows):
    return {student for student, row in rows.items() if isinstance(row, Submission)}


def unclear(rows):
    return [row.reason for name, row in rows.items() if name.startswith("unclear-")]


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_a_name_that_begins_with_a_dot_is_not_hidden(tmp_path, packed):
    """Moodle asks for two names: who has one is often ". Suharto"."""
    names = [". Suharto_12", "Anna Müller_11"]
    files = {f"{name}_assignsubmission_file_/toy.ipynb": GOOD for name in names}
    files |= {f".NET_suharto_{AT}_toy.ipynb": GOOD, "._Anna Müller_11_assignsubmission_file_": b"x"}
    path = write(tmp_path / "all.zip", zipped(files)) if packed else tmp_path / "all"
    for name, content in files.items():
        write(tmp_path / "all" / name, content)
    assert graded(found(path)) == {safe_id(". Suharto"), safe_id("Anna Müller"), "suharto"}
    one = roster({"id": "s01", "name": "Suharto, ."}, {"id": "s02", "name": "Anna Müller"})
    assert graded(found(path, one)) == {"s01", "s02"}


def test_a_folder_or_a_notebook_of_such_a_name_is_not_hidden(tmp_path):
    for name in (". Suharto/toy.ipynb", ". Sukarno.ipynb", ".git/toy.ipynb", "bob/toy.ipynb"):
        write(tmp_path / name, GOOD)
    assert graded(found(tmp_path)) == {safe_id(". Suharto"), safe_id(". Sukarno"), "bob"}


def test_work_in_many_folders_is_found(tmp_path):
    write(tmp_path / "submissions/term/alice/toy.ipynb", GOOD)
    write(tmp_path / f"submissions/term/bob/{'a/' * 6}toy.ipynb", GOOD)
    people = roster({"id": "alice"}, {"id": "bob"})  # by which "term" is the class's
    assert graded(found(tmp_path, people)) == {"alice", "bob"}


def test_a_zip_that_is_not_opened_is_named(tmp_path):
    write(tmp_path / "alice/toy.ipynb", GOOD)
    write(tmp_path / "alice/more.zip", zipped({"toy.ipynb": OTHER}))
    write(tmp_path / "bob/toy.ipynb", GOOD)
    rows = found(tmp_path)
    assert (
        rows["alice"].notes == ("Not looked at, since a notebook is beside: alice/more.zip.",)
        and not rows["bob"].notes
    )


@pytest.mark.parametrize("folder", ["lab09", "lab2"])
def test_who_has_folders_of_other_labs_only_is_named(tmp_path, folder):
    write(tmp_path / "alice" / NAME / "toy.ipynb", GOOD)
    write(tmp_path / "bob" / folder / "work.ipynb", GOOD)
    rows = found(tmp_path)
    assert graded(rows) == {"alice"} and rows["bob"].status == "missing"
    assert found(tmp_path, None, {"bob": "s07"})["s07"].status == "missing"


def test_a_name_that_lost_its_letters_is_nobody_else_s(tmp_path):
    """Anna Müller, who is not on the roster, is not Anna Möller, who is."""
    write(tmp_path / "Müller Anna/toy.ipynb", OTHER)
    rows = found(tmp_path, roster({"id": "s01", "name": "Anna Möller"}))
    assert rows["s01"].status == "missing"
    assert len(unclear(rows)) == 1 and "fits nobody" in unclear(rows)[0]


def test_an_address_and_a_name_of_two_people_are_asked_about(tmp_path):
    write(tmp_path / "info/toy.ipynb", GOOD)
    people = {"id": "s01", "name": "Anna", "email": "info@anna.de"}, {"id": "s02", "name": "Info"}
    [told] = unclear(found(tmp_path, roster(*people)))
    assert "fits several students on the roster (s01, s02)" in told


def test_a_map_names_whole_folders(tmp_path):
    """ "Anna" of the map is not the folder Anna.M, but the notebook Anna.ipynb."""
    for name in ("Anna.ipynb", "Anna.M/toy.ipynb"):
        write(tmp_path / name, GOOD if name.endswith("a.ipynb") else OTHER)
    rows = found(tmp_path, None, {"Anna": "s01"})
    assert graded(rows) == {"s01", "Anna.M"}
    assert rows["s01"].digest == notebook_digest(parse_notebook(GOOD))


def test_a_number_as_the_login_of_an_assignment_with_a_number(tmp_path):
    for login in ("2034567", "2034568"):
        write(tmp_path / f"Lab_1_{login}_{AT}_toy.ipynb", GOOD)
    assert graded(found(tmp_path)) == {"2034567", "2034568"}


def test_moodle_s_numbers_of_another_assignment_are_told(tmp_path):
    write(tmp_path / "Anna Müller_201_assignsubmission_file_/toy.ipynb", GOOD)
    anna = {"id": "s01", "name": "Anna Müller", "moodle": "Participant 101"}
    [told] = unclear(found(tmp_path, roster(anna)))
    assert "worksheet of this one" in told
    del anna["moodle"]
    assert graded(found(tmp_path, roster(anna))) == {"s01"}


def test_a_newer_attempt_without_a_notebook_is_noted(tmp_path):
    write(tmp_path / f"Lab 1_eve_{AT}_toy.ipynb", GOOD)
    write(tmp_path / "Lab 1_eve_attempt_2026-10-02-12-00-00_toy.pdf", b"%PDF")
    notes = found(tmp_path)["eve"].notes
    assert any("toy.pdf was not used: there is no notebook" in note for note in notes)


def test_a_student_s_own_timestamp_says_nothing_in_a_course_system(tmp_path):
    for name in ("toy.ipynb", "timestamp.txt"):
        content = GOOD if name == "toy.ipynb" else b"1999-01-01 00:00:00 UTC"
        write(tmp_path / "Anna Müller_1_assignsubmission_file_" / name, content)
        write(tmp_path / "alice" / NAME / name, content)
    rows = found(tmp_path)
    assert rows[safe_id("Anna Müller")].when is None and rows["alice"].when.year == 1999


def test_a_name_in_canvas_that_ends_in_another_s_number_is_asked_about(tmp_path):
    """Eve, number 77, calls herself muelleranna_11; Bo's own file name begins with a number."""
    write(tmp_path / "muelleranna_11_77_900_toy.ipynb", OTHER)
    write(tmp_path / "bergbo_12_901_01_toy.ipynb", GOOD)
    numbers = {"s01": "11", "s02": "12", "s03": "77"}
    people = roster(*({"id": one, "canvas": number} for one, number in numbers.items()))
    rows = found(tmp_path, people)
    assert graded(rows) == {"s02"}
    assert "may be of number 11 or 77 of Canvas" in unclear(rows)[0]
