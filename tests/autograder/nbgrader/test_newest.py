"""The newest hand-in holds, in whatever order downloads are graded; a lost grade is told."""

import shutil
from dataclasses import replace
from datetime import datetime, timedelta

import nbcourse
import pytest
from nbgrader.api import Gradebook

from autograder.intake.choose import last_sent
from autograder.intake.lms import parcels_of
from autograder.intake.terms import Terms, write_terms
from autograder.nbgrader.release import release

T = datetime(2026, 10, 1, 21, 59)
OLD, NEW = ("upload", 678904), ("upload", 678999)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    root = nbcourse.make_course(tmp_path_factory.mktemp("course"))
    release(root)
    return root


@pytest.fixture
def course(released, tmp_path):
    root = tmp_path / "course"
    shutil.copytree(released, root)
    return root


def hand_in(root, sent, when=None, **answers):
    """The record of a notebook; without answers, of a file that is none."""
    lab = nbcourse.load(root)
    if answers:
        row = nbcourse.submission(lab, nbcourse.answered(lab, **answers))
        result = nbcourse.graded(lab, row, ("test_clip_bounds",) * (answers["ex1"] == "x = 1"))
    else:
        row, result = nbcourse.rejected(lab, "ada", "it is a PDF")
    changes = {"sent": sent} | ({"when": when} if answers else {})
    return lab, result, replace(row, **changes)


def record(root, *arguments, older=False, **answers):
    lab, result, row = hand_in(root, *arguments, **answers)
    [recorded] = nbcourse.recorded(root, lab, [result], [row], older=older)
    assert recorded.trouble == ""
    return recorded


def points(root):
    with Gradebook(f"sqlite:///{root}/gradebook.db", "efficient-llm") as gradebook:
        return gradebook.find_submission(nbcourse.LAB, "ada").score


def test_an_older_download_takes_no_grade_away(course):
    assert record(course, OLD).said == "" and points(course) == 0
    assert record(course, NEW, ex1="x = 2").said == "" and points(course) == 90
    again = record(course, OLD)
    assert points(course) == 90 and again.stays["score"] == 90
    assert "a newer hand-in is graded (678999; this one is 678904): its 90 of 90" in again.said
    assert "--older" in again.said
    page = (course / "feedback" / "ada" / nbcourse.LAB / "toy.html").read_text()
    assert "it is a PDF" not in page
    assert record(course, NEW, ex1="x = 2").stays is None, "the same one is no older one"
    assert "90 -> 0" in record(course, OLD, older=True).said and points(course) == 0


def test_a_newer_file_that_is_no_notebook_holds_and_is_told(course):
    record(course, OLD, ex1="x = 2")
    told = record(course, NEW).said
    assert told == "ada: 90 -> 0 of 90 points, because of another hand-in (it is a PDF)"
    assert points(course) == 0
    assert record(course, OLD, ex1="x = 2").stays["status"] == "rejected"


@pytest.mark.parametrize("sent", [None, ("attempt", T)])
def test_where_nothing_says_which_is_newer_the_last_holds_and_is_told(course, sent):
    """A download without dates, and one whose dates are none that can be compared."""
    record(course, None, ex1="x = 1")
    assert record(course, sent, ex1="x = 2").said == ""
    told = record(course, None, ex1="x = 1").said
    assert "an earlier hand-in takes the place of a later one; which of the two is newer" in told
    assert points(course) == 65
    assert "65 -> 0" in (told := record(course, None).said) and "grade the other once more" in told


def test_times_are_compared_and_the_penalty_is_that_of_the_newest(course):
    write_terms(course, {nbcourse.LAB: Terms(T, 10.0)})
    late = T + timedelta(hours=1, microseconds=5)
    assert record(course, ("time", late), late, ex1="x = 2").late.taken_off == 10
    write_terms(course, {nbcourse.LAB: Terms(T, 20.0)})
    again = record(course, ("time", T), T, ex1="x = 1")
    assert again.stays and again.late.taken_off == 20 and again.hand_ins == 1
    assert points(course) == 90


def test_what_is_no_notebook_is_late_too(course):
    write_terms(course, {nbcourse.LAB: Terms(T, 10.0)})
    late = record(course, ("time", T + timedelta(days=1))).late
    assert late.dated and late.seconds == 86400 and late.taken_off == 0


def test_a_gradebook_that_was_moved_away_has_no_newer_hand_in(course):
    record(course, NEW, ex1="x = 2")
    (course / "gradebook.db").unlink()
    assert record(course, OLD, ex1="x = 1").stays is None and points(course) == 65


def test_who_is_missing_may_have_been_graded_before(course):
    lab, result, row = hand_in(course, None)
    missing = nbcourse.changed(result, status="missing", reason="")
    [recorded] = nbcourse.recorded(course, lab, [missing], [replace(row, status="missing")])
    assert recorded.stays is None
    record(course, NEW, ex1="x = 2")
    [recorded] = nbcourse.recorded(course, lab, [missing], [replace(row, status="missing")])
    assert recorded.stays["score"] == 90 and points(course) == 90


def entry(name):
    from autograder.intake.archive import Entry

    return Entry((name,), "file", lambda limit: b"")


@pytest.mark.parametrize(
    "names, sent",
    [
        (["garcia_7_10_a.pdf", "garcia_7_12_b.pdf"], ("upload", 12)),
        (["garcia"], None),
        (["Lab 1_garcia_attempt_2026-10-01-21-59-00_a.pdf"], ("attempt", T)),
    ],
)
def test_what_is_no_notebook_has_a_date_too(names, sent):
    assert last_sent(parcels_of(map(entry, names))) == sent
