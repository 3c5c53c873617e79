"""Due dates, extensions, penalties and repeated hand-ins, in gradebook, table and feedback."""

import re
import shutil
from dataclasses import replace
from datetime import datetime, timedelta

import nbcourse
import pytest
from nbgrader.api import Gradebook

from autograder import cli
from autograder.commands.tables import late_words, remarks, show_lateness
from autograder.errors import UsageError
from autograder.intake.choose import MARKED_LATE
from autograder.intake.terms import Terms, write_terms
from autograder.nbgrader.recording import Recorded
from autograder.nbgrader.release import release

DUE = datetime(2026, 10, 1, 21, 59)


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


def handed_in(root, student, when):
    """The record of right work that a course system dated."""
    lab = nbcourse.load(root)
    row = replace(nbcourse.submission(lab, nbcourse.right(lab), student), when=when)
    [recorded] = nbcourse.recorded(root, lab, [nbcourse.graded(lab, row)], [row])
    assert recorded.trouble == ""
    return recorded


def book(root):
    return Gradebook(f"sqlite:///{root}/gradebook.db", "efficient-llm")


def page(root, student):
    text = (root / "feedback" / student / nbcourse.LAB / "toy.html").read_text()
    text = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


CASES = {
    "on time": (timedelta(0), None, None, "", ""),
    "a second": (timedelta(seconds=1), None, 10, "1 min: 90 - 10 = 80",
                 "Handed in 1 min after the due date, 2026-10-01 21:59 UTC."),
    "two days": (timedelta(days=1, hours=3), None, 20, "1 d 3 h: 90 - 20 = 70",
                 "Handed in 1 d 3 h after the due date, 2026-10-01 21:59 UTC."),
    "months": (timedelta(days=60), None, 90, "60 d: 90 - 90 = 0", "Handed in 60 d after"),
    "extended": (timedelta(days=3), timedelta(days=7), None,
                 "on time (extended to 2026-10-08 21:59 UTC)",
                 "Handed in on time: your extension was 2026-10-08 21:59 UTC."),
    "after the extension": (timedelta(days=8), timedelta(days=7), 10,
                            "1 d: 90 - 10 = 80 (extended to 2026-10-08 21:59 UTC)",
                            "Handed in 1 d after your extension, 2026-10-08 21:59 UTC."),
}  # fmt: skip


@pytest.mark.parametrize("after, extension, penalty, table, told", CASES.values(), ids=CASES)
def test_late_work_by_course_toml(course, after, extension, penalty, table, told):
    extensions = {"ada": DUE + extension} if extension else {}
    write_terms(course, {nbcourse.LAB: Terms(DUE, 10.0, extensions)})
    recorded = handed_in(course, "ada", DUE + after)
    assert late_words(recorded.late) == table
    with book(course) as gradebook:
        notebook = gradebook.find_submission_notebook("toy", nbcourse.LAB, "ada")
        assert notebook.late_submission_penalty == penalty
        assert notebook.assignment.assignment.duedate == DUE, "formgrader shows another date"
        assert notebook.assignment.extension == extension
    shown = page(course, "ada")
    assert told in shown and ("Handed in" in shown) == bool(told)
    if penalty:
        assert f"90 points, {penalty} taken off for handing in late: {90 - penalty} of" in shown


def test_times_are_told_in_the_zone_of_the_due_date(course):
    write_terms(course, {nbcourse.LAB: Terms(DUE, 10.0, zone="Europe/Berlin")})
    assert handed_in(course, "ada", DUE + timedelta(hours=1)).late.due.endswith("Berlin")
    assert "after the due date, 2026-10-01 23:59 Europe/Berlin." in page(course, "ada")


def test_changed_terms_hold_from_the_next_run(course):
    late = DUE + timedelta(hours=2)
    assert handed_in(course, "ada", late).late is None, "there is no due date yet"
    write_terms(course, {nbcourse.LAB: Terms(DUE)})
    recorded = handed_in(course, "ada", late)
    assert late_words(recorded.late) == "2 h: nothing taken off"
    write_terms(course, {nbcourse.LAB: Terms(DUE, 5.0)})
    assert handed_in(course, "ada", late).late.taken_off == 5
    write_terms(course, {nbcourse.LAB: Terms(DUE, 5.0, {"ada": DUE + timedelta(days=1)})})
    assert handed_in(course, "ada", late).late.taken_off == 0
    assert "on time: your extension" in page(course, "ada")
    write_terms(course, {nbcourse.LAB: Terms(DUE)})
    assert not handed_in(course, "ada", late).late.extended, "the extension was not taken back"
    pages = (course / "feedback").rglob("*.html")
    before = {path: path.stat().st_mtime_ns for path in pages}
    assert before
    handed_in(course, "ada", late)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_date_that_nobody_knows_costs_nothing(course):
    write_terms(course, {nbcourse.LAB: Terms(DUE, 10.0)})
    late = handed_in(course, "ada", None).late
    assert (late.taken_off, late.dated, late_words(late)) == (0, False, "not known")
    assert "Handed in" not in page(course, "ada")


def test_an_extension_without_a_date_is_not_called_on_time(course, capsys):
    write_terms(course, {nbcourse.LAB: Terms(DUE, 10.0, {"ada": DUE + timedelta(days=7)})})
    recorded = handed_in(course, "ada", None)
    assert not recorded.late.dated and "on time" not in page(course, "ada")
    marked = nbcourse.changed(recorded.result, notes=(MARKED_LATE,))
    other = nbcourse.changed(marked, student="bob")
    show_lateness([recorded._replace(result=marked), Recorded(other), Recorded(recorded.result)])
    out = " ".join(capsys.readouterr().out.split())
    assert "For 1 of 3 nothing says when it was handed in: nothing was taken off" in out
    assert "late by the course system: ada (extended to 2026-10-08 21:59 UTC), bob" in out
    on_time = Recorded(marked, late=handed_in(course, "ada", DUE).late)
    show_lateness([on_time])
    assert capsys.readouterr().out == "", "its date is known"


def test_timestamp_txt_comes_before_the_course_system(course):
    write_terms(course, {nbcourse.LAB: Terms(DUE, 10.0)})
    lab = nbcourse.load(course)
    stamp = nbcourse.submit(course, "ada", nbcourse.right(lab)).parent / "timestamp.txt"
    stamp.write_text("2026-10-02 00:00:00 UTC")
    assert handed_in(course, "ada", DUE - timedelta(days=1)).late.seconds == 2 * 3600 + 60


def test_without_course_toml_the_date_of_formgrader_holds(course):
    handed_in(course, "ada", None)
    with book(course) as gradebook:
        gradebook.update_or_create_assignment(nbcourse.LAB, duedate=DUE)
    late = handed_in(course, "ada", DUE + timedelta(hours=5)).late
    assert late.seconds == 5 * 3600 and late.taken_off == 0


def test_a_course_toml_that_cannot_be_read_stops_before_anything_is_recorded(course):
    (course / "course.toml").write_text("[lab00_toy]\ndue = 2026-10-01T00:00:00\n")
    with pytest.raises(UsageError, match="has no zone"):
        handed_in(course, "ada", DUE)


def test_a_due_date_that_is_taken_back_leaves_the_gradebook(course):
    write_terms(course, {nbcourse.LAB: Terms(DUE, 5.0, {"ada": DUE + timedelta(days=1)})})
    late = DUE + timedelta(days=2)
    assert handed_in(course, "ada", late).late.extended
    assert cli.run(["course", "due", nbcourse.LAB, "none", "--course", str(course)]) == 0
    assert handed_in(course, "ada", late).late is None
    with book(course) as gradebook:
        gradebook.update_or_create_assignment(nbcourse.LAB, duedate=DUE)
        gradebook.grant_extension(nbcourse.LAB, "ada", hours=1)
    assert handed_in(course, "ada", late).late.extended, "nbgrader's own extensions hold as well"
    assert cli.run(["course", "due", nbcourse.LAB, "none", "--course", str(course)]) == 0
    assert handed_in(course, "ada", late).late.extended, "a date of formgrader's was taken back"


def test_a_lab_that_is_not_there_is_told(course):
    write_terms(course, {"lab00_tyo": Terms(DUE)})
    with pytest.raises(UsageError, match="there is no lab lab00_tyo"):
        handed_in(course, "ada", DUE)


# ---- several hand-ins ---------------------------------------------------------------------------


def test_hand_ins_are_counted_and_told(course):
    lab = nbcourse.load(course)

    def hand_in(**answers):
        row = nbcourse.submission(lab, nbcourse.answered(lab, **answers), "ada")
        [recorded] = nbcourse.recorded(course, lab, [nbcourse.graded(lab, row)], [row])
        return recorded

    first = hand_in(ex1="x = 1")
    assert first.hand_ins == 1 and "hand-in" not in remarks(first) + page(course, "ada")
    assert hand_in(ex1="x = 1").hand_ins == 1, "the same one counts twice"
    second = hand_in(ex1="x = 2")
    assert second.hand_ins == 2 and "(hand-in 2)" in remarks(second)
    assert "Hand-in 2: it replaces those that were graded before." in page(course, "ada")
    row, refused = nbcourse.rejected(lab, "ada", "the file is empty")
    [recorded] = nbcourse.recorded(course, lab, [refused], [row])
    assert recorded.hand_ins == 2, "what is no notebook counts"
    assert hand_in(ex1="x = 1").hand_ins == 3
