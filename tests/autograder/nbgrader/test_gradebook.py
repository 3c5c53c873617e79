"""Results in nbgrader's gradebook: points where they belong, and what a person gave stays."""

import csv
import datetime
import math
import shutil
import sys
from contextlib import contextmanager

import nbcourse
import pytest
from nbgrader.api import Gradebook

from autograder.errors import StorageError
from autograder.nbgrader.course import course_directory
from autograder.nbgrader.gradebook import GradebookError, set_score
from autograder.nbgrader.release import release

CHECKS = ("ex1-check", "ex2-check")


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    root = nbcourse.make_course(tmp_path_factory.mktemp("course"))
    release(root)
    shutil.copy(root / "gradebook.db", root / "fresh.db")
    return root


@pytest.fixture
def course(released, tmp_path):
    """A course with a gradebook of its own (a copy: making one takes seconds): root, lab, url."""
    shutil.copy(released / "fresh.db", tmp_path / "gradebook.db")
    return released, nbcourse.load(released), f"sqlite:///{tmp_path}/gradebook.db"


@contextmanager
def book(url):
    with Gradebook(url, "efficient-llm") as gradebook:
        yield gradebook


def grades(url, student):
    """cell -> (auto, manual, needs a person), as numbers."""
    with book(url) as gradebook:
        notebook = gradebook.find_submission_notebook("toy", nbcourse.LAB, student)
        return {
            g.name: (g.auto_score, g.manual_score, g.needs_manual_grade) for g in notebook.grades
        }


def comments(url, student):
    with book(url) as gradebook:
        notebook = gradebook.find_submission_notebook("toy", nbcourse.LAB, student)
        return {comment.name: comment.auto_comment for comment in notebook.comments}


def grade_by_hand(url, student, cell, score):
    """What formgrader's PUT does."""
    with book(url) as gradebook:
        grade = gradebook.find_grade(cell, "toy", nbcourse.LAB, student)
        grade.manual_score, grade.needs_manual_grade = score, False
        gradebook.db.commit()


def put(course, nb, lost=(), student="ada", **changes):
    root, lab, url = course
    handed_in = nbcourse.submission(lab, nb, student)
    result = nbcourse.graded(lab, handed_in, lost, **changes)
    nbcourse.record(root, lab, [result], db_url=url)


def test_points_of_tests_land_in_the_check_cells(course):
    put(course, nbcourse.right(course[1]), lost=("test_clip_bounds",))
    assert grades(course[2], "ada") == {
        "ex1-check": (50, None, False),
        "ex2-check": (15, None, False),
        "w1": (None, None, True),
    }
    assert set(comments(course[2], "ada").values()) == {None}
    with book(course[2]) as gradebook:
        submission = gradebook.find_submission(nbcourse.LAB, "ada")
        assert (submission.score, submission.max_score) == (65, 100)


def test_what_was_not_answered_needs_no_person(course):
    put(course, nbcourse.answered(course[1]), lost=[test.test for test in course[1].tests])
    assert grades(course[2], "ada") == dict.fromkeys((*CHECKS, "w1"), (0, None, False))
    assert set(comments(course[2], "ada").values()) == {"No response."}


def test_a_rejected_submission_gets_0_and_its_reason(course):
    root, lab, url = course
    row, result = nbcourse.rejected(lab, "bob", "the file is <b>empty</b>")
    nbcourse.record(root, lab, [result], db_url=url)
    assert grades(url, "bob") == dict.fromkeys((*CHECKS, "w1"), (0, None, False))
    assert set(comments(url, "bob").values()) == {
        "Not graded: the file is <\u200bb>empty<\u200b/b>"
    }


def test_an_answer_that_may_be_elsewhere_goes_to_a_person(course):
    look = {"w1": "Cell 9, below the question, may be the answer."}
    put(course, nbcourse.answered(course[1]), look=look)
    assert grades(course[2], "ada")["w1"] == (None, None, True)
    assert comments(course[2], "ada")["w1"] == look["w1"]
    [nb] = (course[0] / "autograded" / "ada").rglob("*.ipynb")
    assert look["w1"] in nb.read_text()


def test_recording_never_reads_the_submission_again(course, monkeypatch):
    """What a submission costs ends with its worker: rebuilding is not repeated here."""
    nb = nbcourse.right(course[1])
    result = nbcourse.graded(course[1], nbcourse.submission(course[1], nb))

    def refuse(*_):
        raise AssertionError("rebuilt in the process that records")

    for name, module in list(sys.modules.items()):
        if name.startswith("autograder.") and hasattr(module, "rebuild"):
            monkeypatch.setattr(module, "rebuild", refuse)
    nbcourse.record(course[0], course[1], [result], db_url=course[2])
    assert grades(course[2], "ada")["w1"] == (None, None, True)
    [nb] = (course[0] / "autograded" / "ada").rglob("*.ipynb")
    assert nbcourse.RIGHT["w1"] in nb.read_text()


def test_a_fault_of_the_grader_is_no_grade(course):
    put(course, nbcourse.right(course[1]), status="fault", reason="grader fault", exercises=())
    with book(course[2]) as gradebook:
        assert gradebook.students == []


def test_a_regrade_overwrites_what_the_grader_gave(course):
    put(course, nbcourse.answered(course[1]), lost=("test_scale_by_hand",))
    put(course, nbcourse.right(course[1]))
    assert grades(course[2], "ada")["ex1-check"] == (50, None, False)
    assert set(comments(course[2], "ada").values()) == {None}


def test_a_score_given_by_hand_stays(course):
    url, nb = course[2], nbcourse.right(course[1])
    put(course, nb, lost=("test_clip_bounds",))
    grade_by_hand(url, "ada", "w1", 7)
    grade_by_hand(url, "ada", "ex2-check", 30)
    put(course, nb, lost=("test_clip_bounds",))  # the same again: nothing to look at
    assert grades(url, "ada")["w1"] == (None, 7, False)
    assert grades(url, "ada")["ex2-check"] == (15, 30, False)
    put(course, nb, lost=())  # the tests changed: the exercise is to be looked at again
    assert grades(url, "ada")["w1"] == (None, 7, False)
    assert grades(url, "ada")["ex2-check"] == (40, 30, True)
    put(course, nbcourse.answered(course[1], **{"w1": "Another answer."}))
    assert grades(url, "ada")["w1"] == (None, 7, True)
    with book(url) as gradebook:
        assert gradebook.find_submission(nbcourse.LAB, "ada").score == 50 + 30 + 7


class Cell:
    name, max_score, manual_score, auto_score, needs_manual_grade = "x", 5.0, None, None, True


@pytest.mark.parametrize("score", [-0.5, 5.1, math.inf, -math.inf, math.nan])
def test_no_score_outside_0_to_max(score):
    with pytest.raises(GradebookError, match="outside 0..5"):
        set_score(Cell(), score, same_submission=False)


@pytest.mark.parametrize("score", [0.0, 5.0, 0.1 + 0.2])
def test_every_score_within_is_taken(score):
    cell = Cell()
    set_score(cell, score, same_submission=False)
    assert (cell.auto_score, cell.needs_manual_grade) == (score, False)


def test_a_submission_is_written_as_a_whole_or_not_at_all(course):
    root, lab, url = course
    put(course, nbcourse.right(lab))
    before = grades(url, "ada")
    handed_in = nbcourse.submission(lab, nbcourse.answered(lab))
    good = nbcourse.graded(lab, handed_in, ("test_scale_by_hand",))
    first, second = good.exercises
    too_much = nbcourse.results.ExerciseResult(
        exercise="ex2", title="", points=41, max_points=41, tests=()
    )
    stray = nbcourse.results.ExerciseResult(
        exercise="ex9", title="", points=0, max_points=1, tests=()
    )
    for exercises in ((first, too_much), (first, second, stray)):
        bad = nbcourse.graded(lab, handed_in, exercises=exercises)
        [row] = nbcourse.recorded(root, lab, [bad], db_url=url)
        assert row.trouble.startswith("GradebookError: ")
        assert grades(url, "ada") == before


def test_the_gradebook_is_made_where_there_is_none(released):
    """On a fresh clone labs/ is there, but neither gradebook nor build/source."""
    coursedir = course_directory(released)
    assert coursedir.db_url == f"sqlite:///{released}/gradebook.db"
    (released / "gradebook.db").unlink()
    lab = nbcourse.load(released)
    handed_in = nbcourse.submission(lab, nbcourse.right(lab))
    nbcourse.record(released, lab, [nbcourse.graded(lab, handed_in)])
    assert grades(coursedir.db_url, "ada")["ex1-check"] == (50, None, False)
    release(released)  # and nbgrader can release again, with submissions in


def test_a_lab_with_other_cells_is_told_apart(course):
    root, lab, url = course
    put(course, nbcourse.right(lab))
    with book(url) as gradebook:
        gradebook.add_grade_cell("old", "toy", lab.name, max_score=1, cell_type="code")
    with pytest.raises(StorageError, match="with other cells"):
        put(course, nbcourse.right(lab))


@pytest.mark.parametrize(
    "content, expected",
    [
        ("2026-01-02 03:04:05 UTC", datetime.datetime(2026, 1, 2, 3, 4, 5)),
        ("yesterday", None),
        ("", None),
        ("\udcff", None),
    ],
)
def test_when_it_was_handed_in(course, content, expected):
    root, lab, url = course
    stamp = nbcourse.submit(root, "tim", nbcourse.right(lab)).parent / "timestamp.txt"
    stamp.write_bytes(content.encode("utf-8", "surrogateescape"))
    put(course, nbcourse.right(lab), student="tim")
    with book(url) as gradebook:
        assert gradebook.find_submission(lab.name, "tim").timestamp == expected


def test_nbgrader_s_penalties_for_late_work_apply(tmp_path):
    root = nbcourse.make_course(tmp_path)
    settings = (nbcourse.ROOT / "nbgrader_config.py").read_text()
    nbcourse.write(
        root / "nbgrader_config.py",
        settings + 'c.LateSubmissionPlugin.penalty_method = "zero"\n',
    )
    release(root)
    lab, url = nbcourse.load(root), f"sqlite:///{root}/gradebook.db"
    with book(url) as gradebook:
        gradebook.update_or_create_assignment(lab.name, duedate="2026-01-01 00:00:00 UTC")
    for student, day in (("early", "2025-12-31"), ("late", "2026-01-02")):
        folder = nbcourse.submit(root, student, nbcourse.right(lab)).parent
        (folder / "timestamp.txt").write_text(f"{day} 03:04:05 UTC")
        put((root, lab, url), nbcourse.right(lab), student=student)
    with book(url) as gradebook:
        penalties = [
            gradebook.find_submission(lab.name, student).late_submission_penalty
            for student in ("early", "late")
        ]
    assert penalties == [0, 90]


def test_nbgrader_export_lists_everyone(tmp_path, nbgrader):
    root = nbcourse.make_course(tmp_path)
    release(root)
    lab = nbcourse.load(root)
    handed_in = nbcourse.submission(lab, nbcourse.right(lab))
    row, refused = nbcourse.rejected(lab, "bob", "no notebook")
    nbcourse.record(root, lab, [nbcourse.graded(lab, handed_in), refused])
    name = '=HYPERLINK("http://evil","x")'
    with Gradebook(f"sqlite:///{root}/gradebook.db", "efficient-llm") as gradebook:
        gradebook.update_or_create_student("bob", last_name=name, first_name="+1, x")
    nbgrader(root, "export")
    rows = list(csv.DictReader((root / "grades.csv").open()))
    assert {r["student_id"]: (r["score"], r["max_score"]) for r in rows} == {
        "ada": ("90.0", "100.0"),
        "bob": ("0.0", "100.0"),
    }
    [bob] = [r for r in rows if r["student_id"] == "bob"]
    assert (bob["last_name"], bob["first_name"]) == (f"'{name}", "'+1, x")
