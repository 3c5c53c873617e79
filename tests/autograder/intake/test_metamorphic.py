"""What one student hands in changes no other student's row, in any layout, and nobody vanishes.

Classes are generated as the course systems give them out.  Then one student's files get other names
(such as stand for another student in some system), more files, damaged ones, or folders.  What the
system writes stays: a student does not choose it, but for the SID at Gradescope.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from handed_in import GOOD, LAB, zipped
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from toylab import NAME, answered, write

from autograder.intake.discover import Submission, discover
from autograder.intake.roster import person

OTHER = json.dumps(answered(ex1="def scale(numbers, factor):\n    return numbers")).encode()
TIME = "2026-10-01-12-00-0"


@dataclass(frozen=True)
class Someone:
    number: int
    name: str
    login: str

    @property
    def email(self) -> str:
        return f"{self.name.split()[1].lower()}@uni.edu"


CLASS = [
    Someone(1, "Anna Müller", "amueller"),
    Someone(2, "Eve Evil", "x_amueller"),
    Someone(3, "Ben Bär", "s03"),
    Someone(4, ". Suharto", "su"),  # a name as Moodle has it of who has one
]
EVE = CLASS[1]
ROSTER = {
    one.login: person(one.login, {"id": one.login, "name": one.name, "email": one.email, **numbers})
    for one in CLASS
    for numbers in [{"canvas": f"1{one.number}", "moodle": f"4{one.number}"}]
}

# how a system names the file that a student called `file`, the `copy`-th of this student
SYSTEMS = {
    "canvas": lambda s, file, copy: (
        f"{s.name.split()[1].lower()}{s.name.split()[0].lower()}_1{s.number}_{s.number}{copy}_{file}"
    ),
    "moodle": lambda s, file, copy: f"{s.name}_4{s.number}_assignsubmission_file_/{file}",
    "moodle files": lambda s, file, copy: f"{s.name}_4{s.number}_assignsubmission_file_{file}",
    "blackboard": lambda s, file, copy: f"Lab 1_{s.login}_attempt_{TIME}{copy}_{file}",
    "gradescope": lambda s, file, copy: f"submission_{s.number}/{file}",
    "folders": lambda s, file, copy: f"{s.login}/{file}",
    "nbgrader": lambda s, file, copy: f"{s.login}/{NAME}/{file}",
}
IN_FOLDERS = ("moodle", "gradescope", "folders", "nbgrader")

# names that a student may give a file; each says in some system that it is Anna's
NAMES = [
    "toy.ipynb",
    f"x_amueller_attempt_{TIME}9_toy.ipynb",
    f"Lab 1_amueller_attempt_{TIME}9.ipynb",
    "Anna Müller_41_assignsubmission_file_toy.ipynb",
    "Anna Müller_41_assignsubmission_file_",
    "muelleranna_11_99_toy.ipynb",
    "muelleranna_LATE_11_99_toy.ipynb",
    "amueller.ipynb",
    "Anna Müller.ipynb",
    "submission_1.ipynb",
    "submission_metadata.yml",
    "timestamp.txt",
    "notes.pdf",
    "all.zip",
]
FOLDERS = [
    NAME,
    "lab09_other",
    "amueller",
    "submission_1",
    "Anna Müller_41_assignsubmission_file_",
    f"amueller/{NAME}",
]
SIDS = ["x_amueller", "", "Müller@uni.edu", "müller@uni.edu ", "suharto@uni.edu", "Eve"]


def metadata(sid: str = EVE.login) -> str:
    """Gradescope's, where Eve wrote this as her SID; Anna has none: her address is her id."""
    sids = {one: one.login for one in CLASS} | {EVE: sid, CLASS[0]: ""}
    return "".join(
        f"submission_{one.number}:\n  :submitters:\n  - :name: '{one.name}'\n"
        f"    :sid: '{sids[one]}'\n    :email: {one.email}\n"
        f"  :created_at: 2026-10-0{one.number} 12:00:00 Z\n"
        for one in (CLASS[0], *CLASS[2:], EVE)
    )


CONTENT = st.sampled_from(
    [
        GOOD,
        OTHER,
        b"{",
        b"",
        b"PK\x03\x04",
        metadata("Müller@uni.edu").replace("Eve Evil", "Anna Müller").encode(),
        zipped({"amueller/toy.ipynb": OTHER}),
        zipped({f"amueller/{NAME}/toy.ipynb": OTHER, "../x.ipynb": OTHER}),
    ]
)
FILE = st.sampled_from(NAMES) | st.builds(
    lambda folder, name: f"{folder}/{name}", st.sampled_from(FOLDERS), st.sampled_from(NAMES)
)


def written(
    root: Path,
    system: str,
    files: dict[Someone, dict[str, bytes]],
    packed: bool,
    sid: str = EVE.login,
    around: str = "",
) -> Path:
    """The download of a class; folders that a system flattens keep their last name only."""
    all_files = {}
    for one, own in files.items():
        for copy, (file, content) in enumerate(own.items()):
            flat = file if system in IN_FOLDERS else file.rpartition("/")[2]
            all_files[SYSTEMS[system](one, flat, copy)] = content
    if system == "gradescope":
        all_files["submission_metadata.yml"] = metadata(sid).encode()
    all_files = {around + name: content for name, content in all_files.items()}
    if packed:
        return write(root / "class.zip", zipped(all_files))
    for name, content in all_files.items():
        if not any(parent in all_files for parent in map(str, Path(name).parents)):
            write(root / "class" / name, content)
    return root / "class"


def rows_but_of(one: Someone, path: Path, roster) -> tuple[dict[str, tuple], bool]:
    """Everything about all rows that are not this student's; and whether others are there."""
    mine = {one.login, one.email, "evileve_12", "Eve Evil"}
    found, told = {}, False
    for row in discover(path, LAB, roster):
        if row.student in mine or row.name == one.name or row.student.startswith("unclear-"):
            told = True
            continue
        graded = isinstance(row, Submission)
        found[row.student] = (row.digest, row.notes) if graded else (row.status, row.reason)
    return found, told


@pytest.mark.parametrize("listed", [True, False], ids=["roster", "none"])
@pytest.mark.parametrize("system", SYSTEMS)
@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(files={NAMES[1]: OTHER}, packed=False, sid=EVE.login, around="")
@example(files={NAMES[3]: OTHER}, packed=True, sid="Müller@uni.edu", around="")
@example(files={f"{NAME}/toy.ipynb": OTHER}, packed=False, sid=EVE.login, around="")
@example(files={"lab09_other/toy.ipynb": OTHER}, packed=False, sid=EVE.login, around="")
@given(
    files=st.dictionaries(FILE, CONTENT, max_size=4),
    packed=st.booleans(),
    sid=st.sampled_from(SIDS),
    around=st.sampled_from(["", "submissions/", "term/1/"]),
)
def test_no_other_row_changes(system, listed, files, packed, sid, around, tmp_path_factory):
    if system == "blackboard" and not listed:
        return  # amueller and x_amueller cannot be told apart there: see the test below
    roster = ROSTER if listed else None
    around = around if listed or around != "term/1/" else ""  # nobody is graded there: test_nested
    honest = {one: {"toy.ipynb": GOOD} for one in CLASS}
    root = tmp_path_factory.mktemp("class")
    before, _ = rows_but_of(EVE, written(root / "a", system, honest, packed, around=around), roster)
    assert len(before) == len(CLASS) - 1
    path = written(root / "b", system, honest | {EVE: files}, packed, sid, around)
    after, told = rows_but_of(EVE, path, roster)
    assert after == before
    assert told or not files


def test_two_possible_owners_of_a_login_are_both_told(tmp_path):
    """Without a roster nobody can say whether x belongs to the title or to the login."""
    honest = {one: {"toy.ipynb": GOOD} for one in CLASS}
    found = discover(written(tmp_path, "blackboard", honest, False), LAB)
    assert {row.student for row in found if isinstance(row, Submission)} == {"s03", "su"}
    [row] = [row for row in found if not isinstance(row, Submission)]
    assert row.status == "unclear"
    assert "Lab 1_amueller and Lab 1_x_amueller" in row.reason and "--roster" in row.reason


def test_a_name_of_two_systems_is_asked_about(tmp_path):
    write(tmp_path / f"evileve_12_7_x_amueller_attempt_{TIME}9_toy.ipynb", OTHER)
    write(tmp_path / "muelleranna_11_8_toy.ipynb", GOOD)
    found = {row.student: row for row in discover(tmp_path, LAB, ROSTER)}
    assert isinstance(found["amueller"], Submission) and found["amueller"].cells != ()
    [row] = [row for name, row in found.items() if name.startswith("unclear-")]
    assert "may be a name of two course systems" in row.reason


def test_one_folder_called_like_the_lab_is_one_student_s(tmp_path):
    for one in CLASS[:3]:
        write(tmp_path / one.login / "toy.ipynb", GOOD)
    write(tmp_path / "su" / NAME / "toy.ipynb", GOOD)
    write(tmp_path / "su" / "scratch.ipynb", OTHER)
    found = {row.student: row for row in discover(tmp_path, LAB)}
    assert set(found) == {one.login for one in CLASS}
    assert all(isinstance(row, Submission) for row in found.values())
    assert f"Not looked at, since {NAME}/ is there: scratch.ipynb." in found["su"].notes
    assert found["s03"].notes == ()


def test_the_only_student_s_files_are_not_taken_for_a_class(tmp_path):
    """A folder with one student's folder in it, as where one hand-in came late."""
    write(tmp_path / "late" / "evil" / "Anna Müller_41_assignsubmission_file_toy.ipynb", OTHER)
    assert [row.student for row in discover(tmp_path / "late", LAB)] == ["evil"]
    write(tmp_path / "late" / "evil" / ". Suharto_44_assignsubmission_file_toy.ipynb", OTHER)
    listed = {"evil": person("evil", {"id": "evil"})} | ROSTER
    rows = discover(tmp_path / "late", LAB, listed)
    handed_in = [row for row in rows if getattr(row, "status", "") != "missing"]
    assert [row.student for row in handed_in] == ["evil"]


def test_what_is_left_out_is_named(tmp_path):
    write(tmp_path / "alice" / "toy.ipynb", GOOD)
    write(tmp_path / "bob.pdf", b"%PDF")
    [row] = [row for row in discover(tmp_path, LAB) if row.student != "alice"]
    assert row.status == "unclear" and row.reason.startswith("bob.pdf was left out")
