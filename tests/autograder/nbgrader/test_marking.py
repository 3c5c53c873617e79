"""One page per written question: question, every answer of the class, pictures; harmless."""

import nbcourse
import nbformat
import pytest
from bleach._vendor import html5lib
from nbgrader.api import Gradebook
from payloads import PAYLOADS, dangers
from pictures import display, png

from autograder.nbgrader.release import release

STUDENTS = [f"student{number:02}" for number in range(12)]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = nbcourse.make_course(tmp_path_factory.mktemp("course"))
    release(root)
    return root


def hand_in(root, notebooks, **changes):
    """Records these notebooks (by student); returns the page of w1."""
    lab = nbcourse.load(root)
    rows = [nbcourse.submission(lab, nb, student) for student, nb in notebooks.items()]
    nbcourse.record(root, lab, [nbcourse.graded(lab, row, **changes) for row in rows], rows)
    return (root / "marking" / lab.name / "w1.html").read_text()


def order(page):
    body = html5lib.parse(page, namespaceHTMLElements=False).find("body")
    return [heading.get("id") for heading in body.iter("h2") if heading.get("id")]


def answers(lab, **said):
    return {student: nbcourse.answered(lab, w1=text) for student, text in said.items()}


def test_question_answers_and_links_to_formgrader(course):
    lab = nbcourse.load(course)
    said = {student: f"Because of **{student}**." for student in STUDENTS}
    page = hand_in(course, answers(lab, **said, silent="") | {"stub": nbcourse.answered(lab)})
    assert "<strong>Question 1.</strong> Why?" in page and "w1, 10 points" in page
    assert "Scores and comments are given in formgrader" in page
    assert all(f"Because of <strong>{student}</strong>." in page for student in STUDENTS)
    assert sorted(order(page)) == STUDENTS
    assert "silent, stub" in page and 'id="silent"' not in page
    with Gradebook(f"sqlite:///{course}/gradebook.db", "efficient-llm") as gradebook:
        for notebook in gradebook.notebook_submissions("toy", lab.name):
            link = f"http://localhost:8888/formgrader/submissions/{notebook.id}/#w1"
            assert (link in page) == (notebook.student.id in STUDENTS)


def test_the_order_is_not_the_alphabet_s_and_stays_when_others_hand_in(course):
    lab = nbcourse.load(course)
    before = order(hand_in(course, answers(lab, **dict.fromkeys(STUDENTS, "Because."))))
    assert sorted(before) == STUDENTS != before
    after = order(hand_in(course, answers(lab, aaron="Because.", zoe="Because.")))
    assert {"aaron", "zoe"} <= set(after)
    assert [student for student in after if student in before] == before


def test_pictures_of_the_section_and_of_own_cells_are_shown(course):
    nb = nbcourse.right(nbcourse.load(course))
    early = next(cell for cell in nb.cells if "demo" in cell.metadata.get("tags", ()))
    early.outputs = [display(image_png=png(1))]  # before an exercise: another section
    plot = nbformat.v4.new_code_cell("plot()", outputs=[display(image_png=png(2))])
    nb.cells.append(plot)
    page = hand_in(course, {"pia": nb})
    assert f'src="data:image/png;base64,{png(2)}" alt="handed in by pia"' in page
    assert png(1) not in page
    assert "img-src data:" in page and "default-src 'none'" in page


def test_what_a_person_should_look_at_is_told(course):
    lab = nbcourse.load(course)
    page = hand_in(course, {"lou": nbcourse.answered(lab)}, look={"w1": "Cell 9 may be <it>."})
    assert "Cell 9 may be &lt;it&gt;." in page and "lou" in order(page)


def test_nothing_of_a_student_s_is_active(course):
    lab = nbcourse.load(course)
    nb = nbcourse.answered(lab, w1="\n\n".join(PAYLOADS))
    page = hand_in(course, {"eve": nb})
    allowed = {"meta", "title", "style", "b", "img", "img src", "header", "aside", "main"}
    folded = ["details", "summary"]  # the model answer
    found = dangers(page)
    assert set(found) <= allowed | set(folded) and "alert(1)" in page
    assert [name for name in found if name in folded] == folded
    images = html5lib.parse(page, namespaceHTMLElements=False).iter("img")
    assert all(image.get("src").startswith("data:image/png;base64,") for image in images)
