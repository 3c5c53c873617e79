"""A class in one more folder is recognised or asked about; it is never one student's hand-in."""

import json
from types import SimpleNamespace

import pytest
from handed_in import GOOD, LAB, zipped
from test_metamorphic import CLASS, ROSTER, SYSTEMS, metadata
from toylab import NAME, answered, write

from autograder.intake.discover import Submission, discover
from autograder.intake.roster import Roster, person

OTHER = json.dumps(answered(ex1="def scale(numbers, factor):\n    return numbers")).encode()
NAMED = SimpleNamespace(**vars(LAB), release_notebook=SimpleNamespace(stem="toy"))
PEOPLE = Roster({s: person(s, {"id": s}) for s in ("s01", "s02", "s03")})
# what may lie in a class's folder, and who is graded where it is known to be one
CLASSES = {
    "folders": {"s01/toy.ipynb": GOOD, "s02/toy.ipynb": OTHER},
    "the same work": {"s01/toy.ipynb": GOOD, "s02/toy.ipynb": GOOD},
    "one damaged": {"s01/toy.ipynb": GOOD, "s02/toy.ipynb": b"{"},
    "one without a notebook": {"s01/toy.ipynb": GOOD, "s02/essay.pdf": b"%PDF"},
    "nobody with a notebook": {"s01/essay.pdf": b"%PDF", "s02/essay.pdf": b"%PDF"},
    "files": {"s01.ipynb": GOOD, "s02.ipynb": OTHER},
    "zips": {f"{s}.zip": zipped({"toy.ipynb": GOOD}) for s in ("s01", "s02")},
    "nbgrader": {f"{s}/{NAME}/toy.ipynb": GOOD for s in ("s01", "s02")},
    "a copy of the lab beside": {"toy.ipynb": OTHER, "s01/toy.ipynb": GOOD, "s02/toy.ipynb": GOOD},
    "deeper": {f"{s}/work/a/toy.ipynb": GOOD for s in ("s01", "s02")},
    "one student": {"s01/toy.ipynb": GOOD},
}
TWO = [name for name in CLASSES if name != "one student"]


def made(root, files, how):
    """The path to grade: a folder, a zip of it, or a folder in which that zip lies."""
    if how == "folder":
        for name, content in files.items():
            write(root / "given" / name, content)
        return root / "given"
    return write(root / "in" / "given.zip", zipped(files)) if how == "zip" else zip_in(root, files)


def zip_in(root, files):
    write(root / "in" / "x.zip", zipped(files))
    return root / "in"


def rows_of(path, *arguments, lab=NAMED):
    found = discover(path, lab, *arguments)
    assert len({row.student for row in found}) == len(found)
    return {row.student: row for row in found}


def graded(rows):
    return {student for student, row in rows.items() if isinstance(row, Submission)}


def unclear(rows):
    return [row.reason for row in rows.values() if getattr(row, "status", "") == "unclear"]


@pytest.mark.parametrize("how", ["folder", "zip", "zip in a folder"])
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("around", ["term", "a/b", ""])
def test_a_class_in_one_more_folder_is_no_student(tmp_path, around, kind, how):
    if not around and how != "zip in a folder":
        return  # the class itself
    files = {f"{around}/{name}".lstrip("/"): content for name, content in CLASSES[kind].items()}
    rows = rows_of(made(tmp_path, files, how))
    if kind == "one student" and not around:
        assert graded(rows) == {"x"}  # x.zip with a folder in it: x's
        return
    [told] = unclear(rows)
    assert len(rows) == 1
    assert "everything lies in" in told and "--map" in told
    if around == "term" and how == "folder":
        assert "in term, with " in told and next(iter(files)).split("/")[1] in told


@pytest.mark.parametrize("how", ["folder", "zip"])
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("around", ["submissions", "given", "Submitted", "assignment_7_export"])
def test_a_folder_that_is_called_as_a_class_s_is_taken_off(tmp_path, around, kind, how):
    files = {f"{around}/{name}": content for name, content in CLASSES[kind].items()}
    if kind == "one student" and around == "given":
        return  # a student's folder in a folder of that name: see below
    inside = rows_of(made(tmp_path / "inside", CLASSES[kind], how))
    assert set(inside) >= ({"s01", "s02"} if kind in TWO else {"s01"})
    assert rows_of(made(tmp_path / "around", files, how)) == inside


@pytest.mark.parametrize("how", ["folder", "zip"])
@pytest.mark.parametrize("kind", TWO)
@pytest.mark.parametrize("known", ["roster", "map"])
def test_a_roster_or_a_map_tells_a_class_from_a_student(tmp_path, known, kind, how):
    files = {f"my class/term 1/{name}": content for name, content in CLASSES[kind].items()}
    told = (PEOPLE,) if known == "roster" else (None, {s: s for s in PEOPLE})
    inside = rows_of(made(tmp_path / "inside", CLASSES[kind], how), *told)
    assert rows_of(made(tmp_path / "around", files, how), *told) == inside
    assert "s01" in inside and inside["s02"].lab == NAME


def test_on_a_roster_one_folder_alone_is_asked_about(tmp_path):
    """Eve, whom nobody knows by the name of her folder, put s01's name into it."""
    write(tmp_path / "homework/s01/toy.ipynb", OTHER)
    rows = rows_of(tmp_path, PEOPLE)
    assert graded(rows) == set() and len(unclear(rows)) == 1
    assert {row.status for name, row in rows.items() if name in PEOPLE} == {"missing"}


@pytest.mark.parametrize("how", ["folder", "zip"])
def test_a_student_of_the_roster_or_the_map_has_any_folders(tmp_path, how):
    files = {"s03/s01/toy.ipynb": OTHER, "s03/s02/x.ipynb": b"{"}
    path = made(tmp_path, files, how)
    for told in ((PEOPLE,), (None, {"s03": "s03"})):
        rows = rows_of(path, *told)
        assert graded(rows) == {"s03"} and unclear(rows) == []


ONE = {
    "a notebook": ["toy.ipynb"],
    "renamed": ["my work.ipynb"],
    "with data": ["toy.ipynb", "data/a.csv", "pictures/b.png"],
    "several, one called like the lab": ["toy.ipynb", "scratch.ipynb", "toy-Copy1.ipynb"],
    "nbgrader": [f"{NAME}/toy.ipynb", f"{NAME}/timestamp.txt", "lab09/other.ipynb"],
    "what macOS adds": ["toy.ipynb", "__MACOSX/s01/._toy.ipynb", ".DS_Store"],
    "no notebook": ["report.pdf"],
}


@pytest.mark.parametrize("how", ["folder", "zip", "zip in a folder"])
@pytest.mark.parametrize("around", ["alice", "given"])
@pytest.mark.parametrize("kind", ONE)
def test_one_student_s_folder_alone_is_the_student_s(tmp_path, kind, around, how):
    path = made(tmp_path, {f"{around}/{name}": GOOD for name in ONE[kind]}, how)
    rows = rows_of(path)
    assert list(rows) == ["x" if how == "zip in a folder" else around]
    assert graded(rows) == (set() if kind == "no notebook" else set(rows))


def test_a_class_s_folder_with_one_notebook_of_the_lab_s_name_is_nobody_s(tmp_path):
    write(tmp_path / "submissions/toy.ipynb", GOOD)
    [told] = unclear(rows_of(tmp_path))
    assert "toy.ipynb in it" in told


def test_what_lies_beside_the_folder_of_a_class_is_named(tmp_path):
    write(tmp_path / "submissions/s01/toy.ipynb", GOOD)
    write(tmp_path / "notes.txt", b"x")
    rows = rows_of(tmp_path)
    assert graded(rows) == {"s01"} and "notes.txt was left out" in unclear(rows)[0]


def test_a_stray_file_of_gradescope_s_hides_no_class(tmp_path):
    write(tmp_path / "submission_metadata.yml", b"")
    for student, work in (("s01", GOOD), ("s02", OTHER)):
        write(tmp_path / "term" / student / "toy.ipynb", work)
    assert len(unclear(rows_of(tmp_path))) == 1


@pytest.mark.parametrize("system", ["moodle", "gradescope", "canvas"])
def test_names_in_a_student_s_folder_are_the_student_s_choice(tmp_path, system):
    """Eve's is the only folder: hand-ins of others, as a course system names them, lie in it."""
    for name, content in download(system).items():
        write(tmp_path / "eve" / name, content)
    rows = rows_of(tmp_path)
    assert graded(rows) == set() and "everything lies in eve" in unclear(rows)[0]


# ---- several folders, each with a part of the class ----------------------------------------------


@pytest.mark.parametrize("packed", [False, True], ids=["folders", "zips"])
@pytest.mark.parametrize("work", [OTHER, GOOD, b"{"], ids=["other", "the same", "damaged"])
def test_groups_of_a_class_are_told(tmp_path, work, packed):
    group = {"s01/toy.ipynb": GOOD, "s02/toy.ipynb": work}
    for name, content in group.items():
        write(tmp_path / "monday" / name, content)
    if packed:
        write(tmp_path / "tuesday.zip", zipped({f"tuesday/{n}": c for n, c in group.items()}))
    else:
        for name in ("s03.ipynb", "s04.ipynb"):
            write(tmp_path / "tuesday" / name, GOOD if name == "s03.ipynb" else work)
    write(tmp_path / "alice/work/toy.ipynb", GOOD)
    write(tmp_path / "alice/data/demo.ipynb", json.dumps({"cells": []}).encode())
    rows = rows_of(tmp_path)
    told = unclear(rows)
    assert isinstance(rows["alice"], Submission) and len(told) == 2
    assert any("monday may be several students'" in t and "s01, s02" in t for t in told)
    assert any("tuesday" in t for t in told)
    if work is OTHER:
        assert graded(rows) == {"alice"} and "monday" not in rows
    mapped = rows_of(tmp_path, None, {"monday": "bo", "tuesday": "cy"})
    assert unclear(mapped) == [] and {"bo", "cy"} <= set(mapped)


def test_a_group_of_more_notebooks_than_one_student_may_have_is_told(tmp_path):
    for number in range(15):
        write(tmp_path / f"monday/s{number:02d}/toy.ipynb", GOOD)
    write(tmp_path / "alice/toy.ipynb", GOOD)
    rows = rows_of(tmp_path)
    assert set(rows) - {"alice"} == {n for n in rows if n.startswith("unclear-")}
    assert "s00, s01, s02, s03, s04, ..." in unclear(rows)[0]


def test_with_a_roster_it_is_said_that_students_lie_in_a_folder(tmp_path):
    for name in ("monday/s01", "monday/s02", "tuesday/s03"):
        write(tmp_path / name / "toy.ipynb", GOOD)
    rows = rows_of(tmp_path, PEOPLE)
    assert graded(rows) == set()
    assert all("fits nobody on the roster" in told and "itself" in told for told in unclear(rows))
    assert len(unclear(rows)) == 2


# ---- generated classes of all systems, in one more folder ----------------------------------------


def download(system):
    files = {SYSTEMS[system](one, "toy.ipynb", 0): GOOD for one in CLASS}
    more = {"submission_metadata.yml": metadata().encode()} if system == "gradescope" else {}
    return files | more


@pytest.mark.parametrize("how", ["folder", "zip"])
@pytest.mark.parametrize("listed", [True, False], ids=["roster", "none"])
@pytest.mark.parametrize("around", ["submissions", "given", "Lab 1-345", "x/y"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_download_in_one_more_folder_is_the_same_class_or_asked_about(
    tmp_path, system, around, listed, how
):
    told = (ROSTER,) if listed else ()
    inside = rows_of(made(tmp_path / "inside", download(system), how), *told)
    files = {f"{around}/{name}": content for name, content in download(system).items()}
    rows = rows_of(made(tmp_path / "around", files, how), *told)
    exported = system not in ("folders", "nbgrader") and around == "Lab 1-345"  # as Moodle names it
    known = listed or around in ("submissions", "given") or exported
    assert rows == inside if known else (graded(rows) == set() and len(unclear(rows)) == 1)
