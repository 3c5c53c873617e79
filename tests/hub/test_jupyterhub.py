"""A lab on a real JupyterHub, from Release to feedback, by what the buttons of the pages send.

Release, Collect, Autograde, Generate and Release Feedback are formgrader's; Fetch, Validate, Submit
and Fetch Feedback are the Assignment List's.  No browser is driven: the requests are the same.
"""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import nbcourse
import nbformat
import pytest
from classroom import ADA, EVE, INSTALLED, PROXY, PYTHON, ROOT, TEACHER, Classroom
from nbgrader.api import Gradebook

from autograder import cli

LAB, COURSE = nbcourse.LAB, "spring-2027"
HALF = "def scale(numbers, factor):\n    return None"
HOSTILE = """
import os
for folder in {folders}:
    try:
        open(os.path.join(folder, "owned-by-eve"), "w").write("x")
    except OSError:
        pass
"""


def setup_module():
    assert os.geteuid() == 0, "makes system users: run it as root, on a machine of your own"
    for path in (PROXY, INSTALLED / "env", Path(PYTHON)):
        assert path.exists(), f"{path} is missing: make test-hub installs it"


@pytest.fixture(scope="module")
def room():
    made = Classroom()
    try:
        made.add_users()
        course = toy_course(made)
        made.environment("teacher", course_wheel(made.folder))
        student = made.environment("student", student_wheel(course, made.folder))
        (student / "etc" / "jupyter" / "nbgrader_config.py").write_text(
            f'c = get_config()\nc.Exchange.root = "{made.exchange}"\n'
            f'c.CourseDirectory.course_id = "{COURSE}"\n'
        )
        made.write(TEACHER, made.home(TEACHER) / ".jupyter" / "nbgrader_config.py",
                   f'c = get_config()\nc.CourseDirectory.root = "{course}"\n')  # fmt: skip
        subprocess.run(["chown", "-R", f"{TEACHER}:", str(course)], check=True)
        made.start()
        yield made
    finally:
        made.close()


def toy_course(room):
    """A course folder as `course new` makes it, with a lab of the teacher's own in it."""
    course = room.home(TEACHER) / COURSE
    nbcourse.make_course(course)
    (course / "autograder" / "suites").rename(course / "suites")
    (course / "autograder").rmdir()
    config = (ROOT / "autograder/own/files/nbgrader_config.py").read_text()
    own = f'c.Exchange.root = "{room.exchange}"\n'
    (course / "nbgrader_config.py").write_text(config.replace("{course_id}", COURSE) + own)
    people = f'id,name\n{ADA},"Lovelace, Ada"\n{EVE},Eve Mallory\n'
    (course / "roster.csv").write_text(people)
    assert cli.run(["release", "--course", str(course)]) == 0
    return course


def student_wheel(course, folder):
    out = folder / "bundle"
    assert cli.run(["bundle", "--out", str(out), "--course", str(course)]) == 0
    return next(out.glob("*.whl"))


def course_wheel(folder):
    """Of the files that git knows, so that nothing old lies in it."""
    with tempfile.TemporaryDirectory() as copy:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (Path(copy) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, Path(copy) / name)
        from autograder.bundle.pack import write_wheel

        return write_wheel(Path(copy), folder, 1767225600)


def answer(room, user, **answers):
    """Writes answers into the notebook that a student fetched."""
    path = room.home(user) / LAB / "toy.ipynb"
    nb = nbformat.read(path, as_version=4)
    for cell in nb.cells:
        given = cell.metadata.get("nbgrader", {}).get("grade_id", "").replace("-", "_")
        cell.source = answers.get(given, cell.source)
    room.write(user, path, nbformat.writes(nb))


def whole():
    return {name.replace("-", "_"): text for name, text in nbcourse.RIGHT.items()}


def gradebook(room):
    return Gradebook(f"sqlite:///{room.home(TEACHER)}/{COURSE}/gradebook.db", COURSE)


def score(room, user):
    with gradebook(room) as book:
        return book.find_submission(LAB, user).score


def test_students_have_the_wheel_and_no_grader(room):
    code = (
        "import importlib.util as u; print(u.find_spec('autograder'), u.find_spec('efflib').origin)"
    )
    found = room.python(ADA, "-c", code)
    assert found.startswith("None ") and str(room.folder / "student") in found
    found = room.python(TEACHER, "-c", code.replace("u.find_spec('autograder')", "'here'"))
    assert str(room.folder / "teacher") in found


def test_release_and_fetch(room):
    listed = room.formgrader("assignments", "GET")
    assert [(one["name"], one["status"]) for one in listed] == [(LAB, "draft")]
    room.formgrader(f"assignment/{LAB}/release")
    for user in (ADA, EVE):
        room.button(user, "fetch", COURSE, LAB)
        there = {path.name for path in (room.home(user) / LAB).iterdir()}
        assert {"toy.ipynb", "test_public.py", "exercises.toml"} <= there


def test_validate_runs_the_checks_in_the_students_environment(room):
    def validated():
        path = f"/user/{ADA}/assignments/validate"
        return room.call("POST", path, path=f"{LAB}/toy.ipynb")

    for answers in ({}, whole() | {"ex1": HALF}):
        answer(room, ADA, **answers)
        failed = validated()["value"]["failed"]
        assert failed[0]["source"] == 'lab.check("ex1")' and "CheckFailed" in failed[0]["error"]
    answer(room, ADA, **whole())
    told = validated()
    assert told["success"] and not told["value"].get("failed"), told


def test_submit_hand_in_again_and_collect(room):
    answer(room, ADA, **(whole() | {"ex1": HALF}))
    room.button(ADA, "submit", COURSE, LAB)
    room.formgrader(f"assignment/{LAB}/collect")
    answer(room, ADA, **whole())
    time.sleep(1.1)  # nbgrader's times have seconds
    room.button(ADA, "submit", COURSE, LAB)
    places = [str(room.home(TEACHER)), str(room.home(TEACHER) / COURSE), str(room.folder), "/tmp"]
    attack = HOSTILE.format(folders=places)
    answer(room, EVE, **(whole() | {"ex1": attack + nbcourse.RIGHT["ex1"]}))
    room.button(EVE, "submit", COURSE, LAB)
    room.formgrader(f"assignment/{LAB}/collect")
    course = room.home(TEACHER) / COURSE
    collected = (course / "submitted" / ADA / LAB / "toy.ipynb").read_text()
    assert "return None" not in collected, "the newer hand-in replaced the older"
    names = {
        one["student"]: one["last_name"] for one in room.formgrader(f"submissions/{LAB}", "GET")
    }
    assert names == {ADA: "Lovelace", EVE: "Mallory"}


def test_autograde_by_button_is_in_the_sandbox(room):
    for user in (ADA, EVE):
        told = room.formgrader(f"submission/{LAB}/{user}/autograde")
        assert told["success"], told
    assert score(room, ADA) == 90 and score(room, EVE) == 90
    owned = Path("owned-by-eve")
    places = [room.home(TEACHER), room.home(TEACHER) / COURSE, room.folder, Path("/tmp")]
    assert not [place for place in places if (place / owned).exists()]
    # the same code, run as the teacher without a sandbox, does write there
    room.python(TEACHER, "-c", HOSTILE.format(folders=[str(room.home(TEACHER))]))
    assert (room.home(TEACHER) / owned).exists()
    (room.home(TEACHER) / owned).unlink()


def test_a_grade_by_hand_and_feedback_that_the_student_fetches(room):
    with gradebook(room) as book:
        grade = book.find_grade("w1", "toy", LAB, ADA)
        number, needed = grade.id, grade.needs_manual_grade
    assert needed
    room.formgrader(f"grade/{number}", "PUT", {"manual_score": 7})
    assert score(room, ADA) == 97
    room.formgrader(f"assignment/{LAB}/generate_feedback")
    room.formgrader(f"assignment/{LAB}/release_feedback")
    room.button(ADA, "fetch_feedback", COURSE, LAB)
    [page] = (room.home(ADA) / LAB / "feedback").rglob("*.html")
    assert "97" in page.read_text() and nbcourse.CANARY not in page.read_text()
    others = [path for path in room.exchange.rglob("*.html") if os.access(path, os.R_OK)]
    assert len(others) >= 2
    listing = f"import os; print(os.listdir({str(others[0].parent)!r}))"
    with pytest.raises(AssertionError, match="Permission denied"):
        room.python(EVE, "-c", listing)


def test_what_a_class_costs(room):
    """Prints what one server and one graded hand-in take, for the sizes in course/hub.md."""
    sizes = {user: memory_mb(user) for user in (TEACHER, ADA, EVE)}
    print(f"\nMB (proportional) of single-user servers: {sizes}")
    assert all(size > 0 for size in sizes.values())


def memory_mb(user):
    """Of all processes of a user, shared pages counted in parts."""
    numbers = subprocess.run(["pgrep", "-u", user], capture_output=True, text=True).stdout.split()
    rows = [Path(f"/proc/{number}/smaps_rollup") for number in numbers]
    texts = [row.read_text() for row in rows if row.exists()]
    found = [int(line.split()[1]) for text in texts for line in text.splitlines()
             if line.startswith("Pss:")]  # fmt: skip
    return round(sum(found) / 1000)
