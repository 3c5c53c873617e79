"""nbgrader's own commands over a class: our sandbox, and the same grades as `autograder grade`."""

import copy
import io
import shutil
import zipfile

import nbcourse
import nbformat
import pytest
from nbgrader.api import Gradebook

from autograder.commands.grade import grade_class
from autograder.nbgrader.release import release

pytestmark = pytest.mark.slow

EXPECTED = {  # points of ex1, of ex2; needs a person for w1
    "ada": (50, 40, True),
    "bert": (50, 0, True),
    "copies": (50, 40, True),
    "dies": (0, 40, True),
    "empty": (0, 0, False),
    "linked": (0, 0, False),
    "renamed": (50, 40, True),
    "text": (0, 0, False),
    "zipped": (50, 40, True),
}
ESCAPE = "\n\nopen({path!r}, 'w').write('ran outside the sandbox')\n"


def duplicated(lab):
    nb = nbcourse.right(lab)
    for name in ("ex1", "ex1-check"):
        index = [cell.id for cell in nb.cells].index(name)
        nb.cells.insert(index, copy.deepcopy(nb.cells[index]))
        nb.cells[index].id = f"{name}-copy"
    return nb


def zipped(nb):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("toy.ipynb", nbformat.writes(nb))
    return buffer.getvalue()


def hand_in(root, lab):
    """What nbgrader's collect would have put into submitted/."""
    escape = ESCAPE.format(path=str(root / "escaped"))
    exits = "import os\ndef scale(numbers, factor):\n    os._exit(0)"
    right = {name.replace("-", "_"): text for name, text in nbcourse.RIGHT.items()}
    nbcourse.submit(root, "ada", nbcourse.answered(lab, **right | {"ex1": right["ex1"] + escape}))
    wrong = "def clip(numbers, lo, hi):\n    return numbers"
    nbcourse.submit(root, "bert", nbcourse.answered(lab, **right | {"ex2_b": wrong}))
    nbcourse.submit(root, "copies", duplicated(lab))
    nbcourse.submit(root, "dies", nbcourse.answered(lab, **right | {"ex1": exits}))
    nbcourse.submit(root, "empty", nbcourse.answered(lab))
    nbcourse.submit(root, "renamed", nbcourse.right(lab), "toy (2).ipynb")
    nbcourse.submit(root, "text", b"<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> main\n")
    nbcourse.submit(root, "zipped", zipped(nbcourse.right(lab)), "mine.zip")
    folder = root / "submitted" / "linked" / lab.name
    folder.mkdir(parents=True)
    (folder / "toy.ipynb").symlink_to(root / "build" / "source" / lab.name / "toy.ipynb")
    (folder / "stolen.py").symlink_to(root / "solutions" / lab.name / "toy.py")


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = nbcourse.make_course(tmp_path_factory.mktemp("course"))
    release(root)
    hand_in(root, nbcourse.load(root))
    return root


def grades(root):
    """student -> (ex1, ex2, needs a person), and comments; as the gradebook has them."""
    with Gradebook(f"sqlite:///{root}/gradebook.db", "efficient-llm") as gradebook:
        found = {}
        for row in gradebook.assignment_submissions(nbcourse.LAB):
            [notebook] = row.notebooks
            scores = {grade.name: grade for grade in notebook.grades}
            needed = scores["w1"].needs_manual_grade
            points = (scores["ex1-check"].auto_score, scores["ex2-check"].auto_score, needed)
            said = {comment.name: comment.auto_comment for comment in notebook.comments}
            found[row.student.id] = (points, said)
        return found


def test_nbgrader_autograde_gives_what_autograder_grade_gives(course, tmp_path, nbgrader):
    other = tmp_path / "other"
    shutil.copytree(course, other, symlinks=True)
    nbgrader(course, "autograde", nbcourse.LAB)
    assert {student: points for student, (points, _) in grades(course).items()} == EXPECTED
    grade_class(other, nbcourse.LAB, other / "submitted", jobs=2)
    assert grades(other) == grades(course)


def test_nothing_ran_or_was_copied_outside(course, nbgrader):
    nbgrader(course, "autograde", nbcourse.LAB)
    nbgrader(course, "generate_feedback", nbcourse.LAB)
    assert not (course / "escaped").exists()
    for step, name in (("autograded", "toy.ipynb"), ("feedback", "toy.html")):
        files = [path for path in (course / step).rglob("*") if not path.is_dir()]
        assert {path.parts[-3] for path in files} == set(EXPECTED)
        assert {path.name for path in files} == {name}
        assert not any(path.is_symlink() for path in files)
        assert not any(nbcourse.CANARY in path.read_text() for path in files)
        solution = "[factor * number for number in numbers]"
        assert not any(solution in path.read_text() for path in files)


def test_single_students_can_be_named_or_left_out(course, nbgrader):
    said = nbgrader(course, "autograde", nbcourse.LAB, "--student", "bert", "--force")
    assert "bert: graded, 50 of 90" in said and "ada" not in said
    option = "--CourseDirectory.student_id_exclude=ada,dies,copies"
    said = nbgrader(course, "autograde", nbcourse.LAB, option)
    assert "zipped: graded, 90 of 90" in said and "ada" not in said and "dies" not in said


def test_mistakes_on_the_command_line_are_told(course, nbgrader):
    assert "there is no lab 'lab99'" in nbgrader(course, "autograde", "lab99", code=1)
    told = nbgrader(course, "autograde", nbcourse.LAB, "--student", "nobody", code=1)
    assert "no submission of lab00_toy matches 'nobody'" in told


def test_a_fault_of_the_grader_stops_nobody_and_is_told(course, nbgrader):
    """The hidden tests of a course can be broken: that is no student's zero."""
    other = course.parent / "faulty"
    shutil.copytree(course, other, symlinks=True)
    hidden = other / "autograder" / "suites" / nbcourse.LAB / "test_hidden.py"
    hidden.write_text(hidden.read_text() + "\n\nraise RuntimeError('broken suite')\n")
    before = grades(other)
    nbgrader(other, "autograde", nbcourse.LAB, code=1)
    assert grades(other) == before


def test_without_the_course_s_environment_nbgrader_refuses(course, nbgrader, tmp_path):
    """nbgrader would go on with its own defaults, and run student code unprotected."""
    broken = tmp_path / "autograder" / "__init__.py"
    nbcourse.write(broken, "raise ImportError('no module of ours here')\n")
    said = nbgrader(tmp_path, "autograde", nbcourse.LAB, code=1)
    assert "nbgrader must run in the course's environment" in said
