"""Hand-ins that a course system knows to be of several people are never taken for one person's."""

import json
from types import SimpleNamespace

import pytest
from handed_in import GOOD, LAB, zipped
from toylab import NAME, answered, write

from autograder.commands.send_back import owned_by
from autograder.intake.archive import Entry, walk
from autograder.intake.discover import Submission, discover
from autograder.intake.layout import of_this_lab
from autograder.intake.lms import parcels_of
from autograder.intake.notebook import notebook_digest, parse_notebook
from autograder.intake.owners import owners_of
from autograder.intake.roster import Roster, person

EVIL = json.dumps(answered(ex1="def scale(numbers, factor):\n    return numbers")).encode()
ANNA = {"id": "s01", "name": "Anna Müller", "email": "anna@uni.edu"}
EVE = {"id": "s02", "name": "Eve Evil", "email": "eve@uni.edu"}
ROSTER = Roster({one["id"]: person(one["id"], one) for one in (ANNA, EVE)})
MOODLE = "Anna Müller_{}_assignsubmission_file_/{}"
PAIRS = {  # Anna's file, and one of another person whom the system gives a name that fits Anna too
    "Canvas": ("muelleranna_11_100_toy.ipynb", "mulleranna_22_200_toy.ipynb"),
    "Moodle": (MOODLE.format(1, "toy.ipynb"), MOODLE.format(2, "toy.ipynb")),
}
METADATA = """---
submission_1:
  :submitters: [{":name": Anna, ":sid": s01, ":email": anna@uni.edu}]
  :created_at: 2026-10-01 15:36:26.354374000 Z
submission_2:
  :submitters: [{":name": Eve, ":sid": s01, ":email": eve@uni.edu}]
  :created_at: 2026-10-02 15:36:26.354374000 Z
"""


def found(path, *arguments):
    return {row.student: row for row in discover(path, LAB, *arguments)}


def is_good(row):
    return isinstance(row, Submission) and row.digest == notebook_digest(parse_notebook(GOOD))


@pytest.mark.parametrize("evil", [EVIL, b"{"], ids=["a notebook", "broken"])
@pytest.mark.parametrize("system", PAIRS)
def test_two_numbers_are_two_people_whatever_their_names_are(tmp_path, system, evil):
    anna, other = PAIRS[system]
    write(tmp_path / anna, GOOD)
    assert is_good(found(tmp_path, ROSTER)["s01"])
    write(tmp_path / other, evil)
    row = found(tmp_path, ROSTER)["s01"]
    assert row.status == "unclear" and "s01 may be each of" in row.reason
    mapping = {anna.partition("/")[0]: "s01", other.partition("/")[0]: "s02"}
    assert is_good(found(tmp_path, ROSTER, mapping)["s01"])


def test_a_map_may_say_that_two_are_one(tmp_path):
    for title, hour, content in (("Lab 1", 10, EVIL), ("Lab 1 again", 11, GOOD)):
        write(tmp_path / f"{title}_anna_attempt_2026-10-01-{hour}-00-00_toy.ipynb", content)
    assert found(tmp_path)["anna"].status == "unclear"
    assert is_good(found(tmp_path, None, {"Lab 1_anna": "s01", "Lab 1 again_anna": "s01"})["s01"])


def test_nobody_hands_in_for_others_by_writing_their_sid(tmp_path):
    """People may change their SID at Gradescope, not the address by which they are enrolled."""
    write(tmp_path / "submission_metadata.yml", METADATA.encode())
    write(tmp_path / "submission_1/toy.ipynb", GOOD)
    write(tmp_path / "submission_2/toy.ipynb", EVIL)
    assert is_good(found(tmp_path, ROSTER)["s01"])
    row = found(tmp_path)["s01"]
    assert row.status == "unclear" and "anna@uni.edu and eve@uni.edu" in row.reason
    sids = Roster({"s01": person("s01", {"id": "s01"})})
    assert found(tmp_path, sids)["s01"].status == "unclear"


def metadata(*people):
    """Gradescope's: (name, SID, address) of submission_1, submission_2, ..."""
    return "".join(
        f"submission_{n}:\n  :submitters:\n"
        f"  - :name: {name}\n    :sid: '{sid}'\n    :email: {email}\n"
        f"  :created_at: 2026-10-0{n} 15:36:26 Z\n"
        for n, (name, sid, email) in enumerate(people, 1)
    ).encode()


@pytest.mark.parametrize("listed", [True, False], ids=["roster", "none"])
def test_an_address_written_as_a_sid_is_nobody_s_address(tmp_path, listed):
    """Anna has no SID, so that her address is her id; Eve writes it down as her own SID."""
    people = ("Anna", "", "anna@uni.edu"), ("Eve", "anna@uni.edu", "eve@x.org")
    write(tmp_path / "submission_metadata.yml", metadata(*people))
    write(tmp_path / "submission_1/toy.ipynb", GOOD)
    write(tmp_path / "submission_2/toy.ipynb", EVIL)
    rows = found(tmp_path, ROSTER) if listed else found(tmp_path)
    assert is_good(rows["s01" if listed else "anna@uni.edu"])
    assert listed or not is_good(rows["eve@x.org"])


@pytest.mark.parametrize("name, mine", [("Eve Evil", False), ("Anna M.", True)])
def test_a_sid_alone_is_not_believed_against_name_and_address(tmp_path, name, mine):
    write(tmp_path / "submission_metadata.yml", metadata((name, "s01", "eve@x.org")))
    write(tmp_path / "submission_1/toy.ipynb", GOOD)
    rows = found(tmp_path, ROSTER)
    assert is_good(rows["s01"]) == mine
    told = [row.reason for name, row in rows.items() if name.startswith("unclear-")]
    assert len(told) == (not mine)
    assert mine or "gives the SID of s01 with another name and address" in told[0]


def test_nobody_gets_another_s_feedback(tmp_path):
    for name in PAIRS["Moodle"]:
        write(tmp_path / name, GOOD)
    parcels = parcels_of(walk(tmp_path))
    owned, why = owned_by([(parcel, owners_of(parcel, ROSTER, {})) for parcel in parcels])
    assert [known for _, known in owned] == [[], []]
    assert len(why) == 1 and "s01 may be each of" in why[0]


GROUP = metadata(("Anna", "s01", "anna@uni.edu"), ("Eve", "s02", "eve@uni.edu")).replace(
    b"  :created_at: 2026-10-02",
    b"  - :name: Anna\n    :sid: s01\n    :email: anna@uni.edu\n  :created_at: 2026-10-02",
)


@pytest.mark.parametrize("listed", [True, False], ids=["roster", "none"])
def test_nobody_is_put_into_a_group_over_the_own_work(tmp_path, listed):
    """Who hands in at Gradescope names the members of a group; they are not asked."""
    write(tmp_path / "submission_metadata.yml", GROUP)
    write(tmp_path / "submission_1/toy.ipynb", GOOD)
    write(tmp_path / "submission_2/toy.ipynb", EVIL)
    rows = found(tmp_path, ROSTER) if listed else found(tmp_path)
    assert rows["s01"].status == "unclear" and "with different people" in rows["s01"].reason
    assert "submission_2 (anna@uni.edu, eve@uni.edu)" in rows["s01"].reason
    assert isinstance(rows["s02"], Submission)


def test_without_addresses_a_sid_of_two_names_is_asked_about(tmp_path):
    people = ("Anna", "s01", "''"), ("Eve", "s01", "''")
    write(tmp_path / "submission_metadata.yml", metadata(*people))
    write(tmp_path / "submission_1/toy.ipynb", GOOD)
    write(tmp_path / "submission_2/toy.ipynb", EVIL)
    assert "may be each of Anna and Eve" in found(tmp_path)["s01"].reason


# ---- folders of labs ----------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["lab-2026", "Lab 2 final", "lab5-7", "Lab 3 Lösung"])
def test_a_student_s_own_words_are_no_other_lab(tmp_path, folder):
    write(tmp_path / "alice" / folder / "toy.ipynb", GOOD)
    write(tmp_path / "bob/toy.ipynb", GOOD)
    assert is_good(found(tmp_path).get("alice"))


def test_a_notebook_of_this_lab_s_name_counts_in_a_folder_with_another_number(tmp_path):
    write(tmp_path / "alice/lab2/toy (1).ipynb", GOOD)
    write(tmp_path / "bob/lab2/other.ipynb", GOOD)
    lab = SimpleNamespace(**vars(LAB), release_notebook=tmp_path / "toy.ipynb")
    kept, _ = of_this_lab(list(walk(tmp_path)), lab)
    assert {entry.parts[0] for entry in kept} == {"alice"}


def test_a_zip_with_the_folders_of_one_student_is_that_student_s(tmp_path):
    path = write(tmp_path / "all.zip", zipped({f"alice/{NAME}/toy.ipynb": GOOD}))
    assert list(found(path)) == ["alice"]


def test_many_files_of_one_student_cost_no_minutes(tmp_path):
    """20 000 files beside 20 000: each compared with each would take ten minutes."""
    inside = [("eve", NAME, f"{i}.ipynb") for i in range(20_000)]
    beside = [("eve", f"{i}.txt") for i in range(20_000)]
    compared = []

    class Counted(Entry):
        def __eq__(self, other):
            compared.append(other)
            return super().__eq__(other)

        __hash__ = None

    entries = [Counted(parts, "file", None) for parts in inside[:200] + beside[:200]]
    assert len(of_this_lab(entries, LAB)[0]) == 200 and len(compared) < 1000
    path = write(tmp_path / "all.zip", zipped({"/".join(p): b"" for p in inside + beside}))
    assert "notebooks" in found(path)["eve"].reason
