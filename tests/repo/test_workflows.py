"""The workflow files for GitHub: what they call is there, what they may do is little.

They have not run on GitHub; `make lint-workflows` reads them with actionlint.
"""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "autograder" / "nbgrader"))
import nbcourse  # noqa: E402

from autograder.intake.discover import Submission, discover  # noqa: E402
from autograder.nbgrader.release import release  # noqa: E402

PAGES = ROOT / ".github" / "workflows" / "pages.yml"
CLASSROOM = ROOT / "course" / "classroom" / "public-tests.yml"
PROGRAM = CLASSROOM.with_name("public_tests.py")
PAGE = (ROOT / "course" / "publishing.md").read_text()


def steps(path: Path) -> list[dict]:
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("path", [PAGES, CLASSROOM], ids=lambda path: path.name)
def test_rights_are_named_and_actions_have_a_version(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    more = [job.get("permissions", {}) for job in workflow["jobs"].values()]
    assert all(set(one) <= {"pages", "id-token"} for one in more)
    assert all("timeout-minutes" in job or "needs" in job for job in workflow["jobs"].values())
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[\w-]+@v\d+", name) for name in used)
    assert "secrets." not in path.read_text()


def test_the_site_that_is_published_is_the_one_that_make_builds():
    makefile = (ROOT / "Makefile").read_text()
    (command,) = [step["run"] for step in steps(PAGES) if "run" in step]
    assert command == "make site PYTHON=python"
    (upload,) = [s for s in steps(PAGES) if "upload-pages-artifact" in s.get("uses", "")]
    assert f"sphinx-build -W -b html course {upload['with']['path']}\n" in makefile
    assert "if: github.event.repository.has_pages" in PAGES.read_text()  # a fork without: nothing


def test_students_repositories_call_what_a_bundle_has():
    commands = [step["run"] for step in steps(CLASSROOM) if "run" in step]
    assert commands == ["python course.py setup", ".venv/bin/python .github/public_tests.py labs"]
    assert "cp ../../../course/classroom/public_tests.py .github/\n" in PAGE
    # whoever takes part has efflib and IPython, and nothing of the grader
    assert "autograder" not in PROGRAM.read_text()


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = nbcourse.make_course(tmp_path_factory.mktemp("course"))
    release(root)
    return root


def public_tests(course: Path, notebook) -> subprocess.CompletedProcess:
    place = course / "labs" / nbcourse.LAB / "toy.ipynb"
    before = place.read_bytes()
    nbformat.write(notebook, place)
    try:
        command = [sys.executable, PROGRAM, course / "labs"]
        return subprocess.run(command, capture_output=True, text=True)
    finally:
        place.write_bytes(before)


def test_a_push_is_red_where_a_public_test_of_an_attempted_exercise_fails(course):
    lab = nbcourse.load(course)
    right = public_tests(course, nbcourse.right(lab))
    assert right.returncode == 0, right.stdout + right.stderr
    assert "✓ Exercise 1 · Scale · 1 of 1 public tests" in right.stdout
    wrong = nbcourse.answered(lab, ex1="def scale(numbers, factor):\n    return numbers")
    found = public_tests(course, wrong)
    assert found.returncode == 1 and "every number is multiplied" in found.stdout
    assert "○ Exercise 2 · Clip" in found.stdout  # left open: no fault
    assert nbcourse.CANARY not in found.stdout
    untouched = public_tests(course, nbcourse.answered(lab))
    assert (untouched.returncode, untouched.stdout) == (0, "")


def test_a_cell_that_cannot_run_is_told(course):
    lab = nbcourse.load(course)
    broken = nbcourse.answered(
        lab, ex1="def scale(numbers, factor:\n", ex2_b=nbcourse.RIGHT["ex2-b"]
    )
    found = public_tests(course, broken)
    assert found.returncode == 1 and "a cell raised SyntaxError" in found.stdout


def test_cloned_repositories_are_handed_in_as_the_page_says(course, tmp_path):
    """The page's loop, on folders as Classroom's command line names them."""
    lab = nbcourse.load(course)
    for student in ("ada", "bob-b"):
        folder = tmp_path / "lab-1-submissions" / f"lab-1-{student}" / "labs" / nbcourse.LAB
        folder.mkdir(parents=True)
        nbformat.write(nbcourse.right(lab), folder / "toy.ipynb")
    loop = re.search(r"^for folder in .*?^done$", PAGE, re.MULTILINE | re.DOTALL)[0]
    loop = loop.replace("lab01_quantization", nbcourse.LAB)
    subprocess.run(["bash", "-c", loop], cwd=tmp_path, check=True)
    rows = discover(tmp_path / "handed-in", lab)
    assert [(row.student, type(row)) for row in rows] == [
        ("ada", Submission),
        ("bob-b", Submission),
    ]
