"""The toy course of a teacher on the hub: its folder, its wheels, answers and grades."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import nbcourse
import nbformat
from classroom import ADA, EVE, ROOT, TEACHER, Classroom
from nbgrader.api import Gradebook

from autograder import cli
from autograder.bundle.pack import write_wheel

LAB, COURSE = nbcourse.LAB, "spring-2027"


def toy_room() -> Classroom:
    """A running hub for a course with the toy lab, which is released in no exchange yet."""
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
    except BaseException:
        made.close()
        raise
    return made


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
