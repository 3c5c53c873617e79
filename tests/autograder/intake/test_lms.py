"""Downloads of course systems, as they come: who sent what, and which of several counts."""

import json
from datetime import datetime

import pytest
from handed_in import GOOD, LAB, reason, rows, zipped
from hypothesis import example, given, settings
from hypothesis import strategies as st
from toylab import answered, write

from autograder.intake.archive import Entry
from autograder.intake.discover import Rejected, Submission, discover
from autograder.intake.lms import parcels_of
from autograder.intake.names import STUDENT_ID, safe_id
from autograder.intake.notebook import notebook_digest, parse_notebook
from autograder.intake.owners import owners_of
from autograder.intake.roster import person

OTHER = json.dumps(answered(ex1="def scale(numbers, factor):\n    return numbers")).encode()


def digest(content):
    return notebook_digest(parse_notebook(content))


def unclear(path, *arguments):
    return [row for row in discover(path, LAB, *arguments) if row.student.startswith("unclear-")]


# ---- names that are no ids ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Anna Müller", "o'hara", "张伟", "Mu\u0308ller", "\udcff\udcfe"])
def test_any_name_is_a_student_and_is_graded(tmp_path, name):
    write(tmp_path / name / "toy.ipynb", GOOD)
    write(tmp_path / "bob.ipynb", GOOD)
    found = rows(tmp_path)
    assert set(found) == {"bob", safe_id(name)}
    assert all(isinstance(row, Submission) for row in found.values())


def test_two_spellings_of_one_name_are_one_student(tmp_path):
    """One accent stored as one character, and as two: what macOS and Linux make of a name."""
    files = {"Müller/toy.ipynb": GOOD, "Mu\u0308ller/toy.ipynb": GOOD}
    [row] = rows(write(tmp_path / "all.zip", zipped(files))).values()
    assert isinstance(row, Submission) and row.student == safe_id("Müller")
    files["Mu\u0308ller/toy.ipynb"] = OTHER
    [row] = rows(write(tmp_path / "all.zip", zipped(files))).values()
    assert row.status == "unclear" and "several hand-ins" in row.reason


def test_ids_that_differ_only_in_capitals_are_asked_about(tmp_path):
    files = {"Alice/toy.ipynb": GOOD, "alice/toy.ipynb": OTHER, "bob/toy.ipynb": GOOD}
    found = rows(write(tmp_path / "all.zip", zipped(files)))
    assert isinstance(found.pop("bob"), Submission)
    [row] = found.values()
    assert row.status == "unclear" and "Alice and alice differ only in capitals" in row.reason


# ---- Canvas -------------------------------------------------------------------------------------


def test_canvas(tmp_path):
    names = ["muelleranna_LATE_12345_678901_toy.ipynb", "ohara-smithsean_777_678902_toy.ipynb"]
    for name in [*names, "zhangwei_888_678903_essay.pdf"]:
        write(tmp_path / name, GOOD)
    found = rows(tmp_path)
    assert set(found) == {"muelleranna_12345", "ohara-smithsean_777", "zhangwei_888"}
    assert found["muelleranna_12345"].notes == ("The course system marks it as late.",)
    assert "no notebook" in found["zhangwei_888"].reason


@pytest.mark.parametrize("packed", [False, True], ids=["notebooks", "zips"])
def test_the_newest_of_canvas_s_resubmissions_counts(tmp_path, packed):
    names = ["a_1_99_toy", "a_1_100_toy-1", "a_1_101_toy-2", "b_2_50_toy"]
    for name, content in zip(names, [OTHER, OTHER, GOOD, OTHER], strict=True):
        if packed:
            write(tmp_path / f"{name}.zip", zipped({"toy.ipynb": content}))
        else:
            write(tmp_path / f"{name}.ipynb", content)
    found = rows(tmp_path)
    assert found["a_1"].digest == digest(GOOD) and found["b_2"].notes == ()
    assert "the newest" in found["a_1"].notes[0]
    assert packed or "a_1_101_toy-2.ipynb was graded" in found["a_1"].notes[0]


def test_a_newest_file_that_cannot_be_read_does_not_hide_the_one_before(tmp_path):
    write(tmp_path / "a_1_99_toy.ipynb", GOOD)
    write(tmp_path / "a_1_100_toy-1.ipynb", b'{"cells": [')
    write(tmp_path / "b_2_50_toy.ipynb", GOOD)
    row = rows(tmp_path)["a_1"]
    assert row.digest == digest(GOOD)
    assert any("a_1_100_toy-1.ipynb is newer, but the file ends" in note for note in row.notes)


# ---- Moodle, Blackboard -------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["folders", "files", "old folders"])
def test_moodle(tmp_path, layout):
    between = {"folders": "_/toy", "files": "_my toy", "old folders": "/toy"}[layout]
    for name in ("Anna Müller_123", "Sean O'Hara_124", "张伟_125"):
        write(tmp_path / f"{name}_assignsubmission_file{between}.ipynb", GOOD)
    write(tmp_path / "Anna Müller_123_assignsubmission_onlinetext_/onlinetext.html", b"<p>hello")
    found = rows(tmp_path)
    assert {row.name for row in found.values()} == {"Anna Müller", "Sean O'Hara", "张伟"}
    assert all(isinstance(row, Submission) for row in found.values())
    assert safe_id("Anna Müller") in found, "another id than in other labs"


def test_moodle_s_download_of_one_student(tmp_path):
    files = {"Anna Müller_123_assignsubmission_file_/work/toy.ipynb": GOOD}
    assert set(rows(write(tmp_path / "all.zip", zipped(files)))) == {safe_id("Anna Müller")}


def test_two_people_of_one_name_are_never_taken_for_one(tmp_path):
    for number, content in ((123, GOOD), (124, OTHER)):
        write(tmp_path / f"Anna Müller_{number}_assignsubmission_file_/toy.ipynb", content)
    [row] = discover(tmp_path, LAB)
    assert row.status == "unclear"
    assert "Anna Müller_123" in row.reason and "Anna Müller_124" in row.reason


def test_the_newest_attempt_counts(tmp_path):
    for day, content in ((1, OTHER), (3, GOOD), (2, OTHER)):
        name = f"Lab 1_amueller_attempt_2026-10-0{day}-23-59-00_toy.ipynb"
        write(tmp_path / name, content)
    row = rows(tmp_path)["amueller"]
    assert row.digest == digest(GOOD) and "2026-10-03" in row.notes[0]


# ---- Gradescope ---------------------------------------------------------------------------------

METADATA = """---
submission_11:
  :submitters:
  - :name: Anna Müller
    :sid: 's01'
    :email: anna@uni.edu
  :created_at: 2026-10-01 15:36:26.354374000 Z
submission_12:
  :submitters:
  - :name: Ben Bär
    :sid: ''
    :email: ben@uni.edu
  - :name: Cleo
    :sid: s03
  :created_at: !ruby/object:ActiveSupport::TimeWithZone
    utc: 2026-10-02 15:36:26.354374000 Z
submission_13:
  :submitters:
  - :name: Anna Müller
    :sid: 's01'
  :created_at: 2026-10-03 15:36:26.354374000 Z
"""


def gradescope(root, metadata=METADATA):
    for number, content in ((11, OTHER), (12, GOOD), (13, GOOD)):
        write(root / f"submission_{number}" / "toy.ipynb", content)
    if metadata is not None:
        write(root / "submission_metadata.yml", metadata.encode())
    return root


@pytest.mark.parametrize("around", ["", "assignment_9_export"])
def test_gradescope(tmp_path, around):
    gradescope(tmp_path / "all" / around)
    found = rows(tmp_path / "all")
    assert set(found) == {"s01", "ben@uni.edu", "s03"}
    assert found["s01"].digest == digest(GOOD), "not the newest"
    assert found["s03"].digest == found["ben@uni.edu"].digest, "a group's common submission"
    assert found["s01"].name == "Anna Müller"


BROKEN = {"none": None, "no YAML": "a: [", "a list": "- 1", "unknown": "submission_99: {}",
          "python": "submission_11: !!python/object/apply:os.getcwd []"}  # fmt: skip


@pytest.mark.parametrize("metadata", BROKEN.values(), ids=BROKEN)
def test_gradescope_without_its_metadata_is_asked_about(tmp_path, metadata):
    gradescope(tmp_path, metadata)
    found = unclear(tmp_path)
    assert len(found) == 3
    assert all("keep submission_metadata.yml beside it" in row.reason for row in found)


# ---- any names ----------------------------------------------------------------------------------

PART = st.text(max_size=12) | st.sampled_from(["Anna Müller", "anna", "1", "12345", "LATE", ".."])
TOP = st.one_of(
    PART,
    st.builds("{}_{}_{}_{}.ipynb".format, PART, PART, PART, PART),
    st.builds("{}_{}_assignsubmission_file_".format, PART, PART),
    st.builds("{}_{}_attempt_2026-10-01-23-59-{}_x.ipynb".format, PART, PART, PART),
    st.builds("submission_{}".format, PART),
)
PEOPLE = {"anna": person("anna", {"id": "anna", "name": "Anna Müller", "canvas": "12345"})}


@settings(deadline=None)
@given(st.lists(TOP, min_size=1, max_size=6), st.booleans(), st.booleans())
@example(["\xa0.IPYNB", "\u2028", "\x1b[0m", "\u202egnp"], False, True)
def test_whatever_the_names_are_everything_has_a_row(tops, folders, listed):
    """No exception; ids of their own; nothing of theirs is a student who is not on the roster."""
    entries = [
        Entry((top, "toy.ipynb") if folders else (top,), "file", lambda limit: GOOD) for top in tops
    ]
    roster = PEOPLE if listed else None
    for parcel in parcels_of(entries):
        owners = owners_of(parcel, roster, {})
        assert owners
        for owner in owners:
            if isinstance(owner, str):
                assert owner.isprintable() and len(owner) < 400
            else:
                assert STUDENT_ID.fullmatch(owner.id)
                assert not listed or owner.id in PEOPLE


# ---- several hand-ins ---------------------------------------------------------------------------


def test_what_nbgrader_dates_is_chosen_by_its_date(tmp_path):
    files = {}
    for name, day, content in (("Müller", 1, OTHER), ("Mu\u0308ller", 2, GOOD)):
        files[f"{name}/toy.ipynb"] = content
        files[f"{name}/timestamp.txt"] = f"2026-10-0{day} 12:00:00 UTC".encode()
    path = write(tmp_path / "all.zip", zipped(files))
    row = rows(path)[safe_id("Müller")]
    assert row.digest == digest(GOOD) and "the newest" in row.notes[0]


def test_an_entry_that_leaves_its_folder_is_nobody_s(tmp_path):
    path = write(tmp_path / "all.zip", zipped({"../x/toy.ipynb": GOOD, "bob/toy.ipynb": GOOD}))
    [row] = unclear(path)
    assert isinstance(row, Rejected) and row.status == "unclear"
    assert isinstance(rows(path)["bob"], Submission)
    assert reason(path, row.student).startswith('".." is no name')


def test_when_it_was_handed_in_is_kept_where_it_is_told_in_a_known_zone(tmp_path):
    write(tmp_path / "submission_metadata.yml", METADATA.encode())
    write(tmp_path / "submission_11/toy.ipynb", GOOD)
    assert rows(tmp_path)["s01"].when == datetime(2026, 10, 1, 15, 36, 26, 354374)
    for name in ("Lab 1_amueller_attempt_2026-10-03-23-59-00_toy.ipynb", "b_2_50_toy.ipynb"):
        write(tmp_path / "other" / name, GOOD)
    assert {row.when for row in rows(tmp_path / "other").values()} == {None}
