"""The page that a student gets: points, what each test says, comments; harmless and offline."""

import nbcourse
import pytest
from bleach._vendor import html5lib
from nbgrader.api import Gradebook
from payloads import PAYLOADS, dangers

from autograder.nbgrader.feedback import shared_losses
from autograder.nbgrader.release import release

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = nbcourse.make_course(tmp_path_factory.mktemp("course"))
    release(root)
    return root


def give(root, nb, student="ada", lost=(), **changes):
    """Grades, writes gradebook and page; returns the page."""
    lab = nbcourse.load(root)
    row = nbcourse.submission(lab, nb, student)
    result = nbcourse.graded(lab, row, lost, **changes)
    nbcourse.record(root, lab, [result])
    return (root / "feedback" / student / lab.name / "toy.html").read_text()


def words(page):
    """The text of the page, blanks made one."""
    body = html5lib.parse(page, namespaceHTMLElements=False).find("body")
    return " ".join(" ".join(body.itertext()).split())


def test_points_and_the_words_of_every_test(course):
    lost = ("test_clip_by_hand", "test_clip_bounds")
    page = give(course, nbcourse.right(nbcourse.load(course)), lost=lost)
    text = words(page)
    assert "ada : 50 of 100 points ; Written question 1 still to be graded by a person." in text
    assert "Exercise 1: Scale 50 of 50" in text and "Exercise 2: Clip 0 of 40" in text
    assert "clip by hand (public test, 0 of 15 points)" in text and "it is <b>7</b>" in text
    assert "rule both bounds hold usual cause one bound only" in text
    assert "return [ factor * n for n in numbers ]" in text.replace("[factor", "[ factor").replace(
        "numbers]", "numbers ]"
    )
    assert "Question 1. Why?" in text and "Because it is so." in text
    assert nbcourse.CANARY not in page


def test_what_was_not_attempted_is_said_without_rules(course):
    lab = nbcourse.load(course)
    row = nbcourse.submission(lab, nbcourse.answered(lab))
    result = nbcourse.graded(lab, row, [test.test for test in lab.tests])
    parts = tuple(
        nbcourse.changed(
            part, tests=tuple(nbcourse.changed(t, message="not attempted") for t in part.tests)
        )
        for part in result.exercises
    )
    text = words(give(course, nbcourse.answered(lab), exercises=parts, score=0.0))
    assert "not attempted" in text and "usual cause" not in text
    assert "No response." in text and "to be graded" not in text


def test_manual_scores_and_comments_appear_with_nbgrader_generate_feedback(course, nbgrader):
    lab = nbcourse.load(course)
    give(course, nbcourse.right(lab), student="max")
    with Gradebook(f"sqlite:///{course}/gradebook.db", "efficient-llm") as gradebook:
        place = ("toy", lab.name, "max")
        grade = gradebook.find_grade("w1", *place)
        grade.manual_score, grade.needs_manual_grade = 8.5, False
        comment = gradebook.find_comment("w1", *place)
        comment.manual_comment = "Good, but **say why** <script>alert(1)</script>"
        gradebook.db.commit()
    nbgrader(course, "generate_feedback", lab.name, "--student", "max")
    page = (course / "feedback" / "max" / lab.name / "toy.html").read_text()
    text = words(page)
    assert "98.5 of 100 points ." in text and "Written question 1 8.5 of 10" in text
    assert "Good, but say why <script>alert(1)</script>" in text
    assert "<script" not in page


def test_nbgrader_makes_the_same_page_byte_by_byte(course, nbgrader):
    lab = nbcourse.load(course)
    nbcourse.submit(course, "sam", nbcourse.right(lab))
    secret = course / "submitted" / "sam" / lab.name / "submission_secret.txt"
    secret.write_text("0123")
    page = give(course, nbcourse.right(lab), student="sam", lost=("test_clip_bounds",))
    folder = course / "feedback" / "sam" / lab.name
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert kept == {"toy.html": page.encode(), secret.name: b"0123"}
    nbgrader(course, "generate_feedback", lab.name, "--student", "sam")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept


def test_what_was_taken_off_for_lateness_reads_sensibly(tmp_path):
    root = nbcourse.make_course(tmp_path)
    settings = (nbcourse.ROOT / "nbgrader_config.py").read_text()
    late = 'c.LateSubmissionPlugin.penalty_method = "zero"\n'
    nbcourse.write(root / "nbgrader_config.py", settings + late)
    release(root)
    lab = nbcourse.load(root)
    with Gradebook(f"sqlite:///{root}/gradebook.db", "efficient-llm") as gradebook:
        gradebook.update_or_create_assignment(lab.name, duedate="2026-01-01 00:00:00 UTC")
    stamp = nbcourse.submit(root, "ada", nbcourse.right(lab)).parent / "timestamp.txt"
    stamp.write_text("2026-01-02 03:04:05 UTC")
    text = words(give(root, nbcourse.right(lab)))
    assert "ada : 90 points, 90 taken off for handing in late: 0 of 100 points ;" in text
    row = nbcourse.submission(lab, nbcourse.right(lab))
    [recorded] = nbcourse.recorded(root, lab, [nbcourse.graded(lab, row)], [row])
    assert (recorded.late.points, recorded.late.taken_off) == (90, 90)
    assert recorded.late.seconds > 0


@pytest.mark.parametrize("nested", ["> " * 3000, "- " * 3000, "[" * 20_000, "*" * 20_000])
def test_an_answer_nested_without_end_costs_no_page(course, nested):
    nb = nbcourse.answered(nbcourse.load(course), w1=nested + "deep")
    assert "deep" in words(give(course, nb, student="dee"))


def test_a_rejected_student_reads_why(course):
    lab = nbcourse.load(course)
    row, result = nbcourse.rejected(lab, "bob", "the file is <b>empty</b>")
    nbcourse.record(course, lab, [result])
    page = (course / "feedback" / "bob" / lab.name / "toy.html").read_text()
    text = words(page)
    assert "bob : 0 of 100 points . Not graded: the file is <b>empty</b>" in text
    assert "Hand in the notebook toy.ipynb of this lab" in text
    assert "Exercise 1: Scale 0 of 50" in text, "exercises have their titles here too"


def test_there_is_no_page_for_a_fault_of_the_grader(course):
    lab = nbcourse.load(course)
    row = nbcourse.submission(lab, nbcourse.right(lab), "flo")
    result = nbcourse.graded(lab, row, status="fault", reason="grader fault")
    nbcourse.record(course, lab, [result])
    assert not (course / "feedback" / "flo").exists()


def test_remarks_on_the_notebook_are_told(course):
    broken = nbcourse.results.CellRun(label="cell 4, ex1", error="NameError: name 'x'")
    page = give(
        course,
        nbcourse.right(nbcourse.load(course)),
        notes=("Cells 3 and 5 are copies.",),
        cells=(broken,),
        sandbox="none",
    )
    text = words(page)
    assert "Cells 3 and 5 are copies. Cell 4, ex1 raised NameError: name 'x'" in text
    assert "Graded without a sandbox." in text


def test_nothing_of_a_student_s_is_active_and_nothing_is_loaded(course):
    answer = "\n\n".join(PAYLOADS)
    nb = nbcourse.answered(nbcourse.load(course), w1=answer, ex1=f"x = '''{answer}'''")
    page = give(course, nb, "eve", ("test_scale_by_hand",), notes=tuple(PAYLOADS))
    own = {"b", "meta", "title", "style", "h2", "details", "summary", "div style", "span style"}
    assert set(dangers(page)) <= own
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in page
    assert "url(" not in page and "@import" not in page.split("<body>")[0]
    assert "alert(1)" in words(page)  # shown, as text


def lost(title, source, score=3):
    return {"title": title, "source": source, "score": score, "points": 15}


def test_exercises_that_lost_points_together_are_named():
    one = lost("Exercise 1", "def encode(x):\n    return x\n\n\ndef decode(x):\n    return x")
    two = lost("Exercise 2", "def keep(x):\n    return decode(x)  # not encoded")
    three = lost("Exercise 3", "def redecode(x):\n    decoded = keep\n    return decoded(x)")
    written = {"title": "Written question 1", "score": 0, "points": 5}
    parts = [one, two, three, written]
    assert shared_losses(two, parts) == ["Exercise 1"]
    assert [shared_losses(p, parts) for p in (one, three, written)] == [[], [], []]
    for right in (one, two):
        parts = [p if p is not right else p | {"score": 15} for p in (one, two)]
        assert [shared_losses(p, parts) for p in parts] == [[], []]
