"""The gradebook in PostgreSQL holds what the one in a file holds."""

import csv
import os
import random
import subprocess
import sys
from pathlib import Path

import disturbed
import nbcourse
import postgres_server
import pytest
from disturbed import Disturbed, grades, in_file, points, results
from nbgrader.api import Gradebook
from test_unfinished import killed_at, moments, opened

from autograder.nbgrader.course import course_directory
from autograder.nbgrader.release import release

ROOT = Path(__file__).parents[2]
STUDENTS = 12


def configured(root: Path, url: str) -> Path:
    setting = f"c.CourseDirectory.db_url = {url!r}\n"
    nbcourse.write(root / "nbgrader_config.py", (ROOT / "nbgrader_config.py").read_text() + setting)
    return root


def test_release_grades_and_feedback_use_the_configured_database(tmp_path, url):
    root = configured(nbcourse.make_course(tmp_path), url)
    release(root)
    lab = nbcourse.load(root)
    row = nbcourse.submission(lab, nbcourse.right(lab))
    other, refused = nbcourse.rejected(lab, "bob", "no notebook")
    made = [nbcourse.graded(lab, row, ("test_clip_bounds",)), refused]
    for _ in range(2):
        nbcourse.record(root, lab, made, [row, other])
    assert course_directory(root).db_url == url and not (root / "gradebook.db").exists()
    with Gradebook(url, "efficient-llm") as gradebook:
        found = {s.student.id: s.score for s in gradebook.assignment_submissions(lab.name)}
    assert found == {"ada": 65, "bob": 0}
    assert "65 of 100" in (root / "feedback" / "ada" / lab.name / "toy.html").read_text()
    command = [sys.executable, "-m", "nbgrader", "export", "--to", "grades.csv"]
    done = subprocess.run(command, cwd=root, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with (root / "grades.csv").open() as file:
        assert [(row["student_id"], row["score"]) for row in csv.DictReader(file)] == [
            ("ada", "65.0"),
            ("bob", "0.0"),
        ]


def environment() -> dict[str, str]:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    user = os.environ.get("USER", "teacher")  # nbgrader wants one
    return os.environ | {"PYTHONPATH": disturbed.PYTHONPATH, "PATH": programs, "USER": user}


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    return disturbed.hand_in(tmp_path_factory.mktemp("class") / "in", STUDENTS)


@pytest.fixture(scope="module")
def in_a_file(handed_in, tmp_path_factory):
    course = disturbed.new_course(tmp_path_factory.mktemp("file") / "course")
    assert disturbed.grading(course, handed_in).wait() == 0, (course / "log.txt").read_text()
    return course


def test_a_class_that_is_killed_twice_is_graded_as_in_a_file(handed_in, in_a_file, tmp_path, url):
    course, rng = disturbed.new_course(tmp_path / "course"), random.Random(0)
    configured(course, url)
    run = Disturbed(course, handed_in, warm=True)
    for _ in range(2):
        run.kill("coordinator", rng, 20)
    assert run.finish() == 0, (course / "log.txt").read_text()
    assert grades(url) == in_file(in_a_file) and not (course / "gradebook.db").exists()
    told = {student: points(result) for student, result in results(course).items()}
    assert told == {student: points(result) for student, result in results(in_a_file).items()}
    before = written(url)
    assert disturbed.grading(course, handed_in).wait() == 0
    assert written(url) == before, "a second time no row is written"


def written(url: str) -> list[tuple]:
    """(row, the transaction that wrote it) of everything that grading writes."""
    from sqlalchemy import create_engine, text

    engine = create_engine(url)
    with engine.connect() as connection:
        rows = []
        for table in ("grade", "comment", "submitted_notebook", "submitted_assignment", "student"):
            rows += connection.execute(text(f"SELECT id, xmin::text FROM {table} ORDER BY id"))
    engine.dispose()
    return [tuple(row) for row in rows]


def test_a_gradebook_that_was_being_made_is_made_anew(server, tmp_path):
    for number in moments(killed_at(0, course_directory(tmp_path, server.new_database()))):
        course = course_directory(tmp_path, server.new_database())
        assert killed_at(number, course) == number
        assert opened(course) == ["ada"]


def test_a_server_that_is_gone_is_one_line_without_the_password(handed_in, tmp_path):
    with postgres_server.server() as other:
        course = configured(disturbed.new_course(tmp_path / "course"), other.new_database())
    assert disturbed.grading(course, handed_in).wait() == 1
    said = (course / "log.txt").read_text()
    assert said.startswith("autograder: the gradebook postgresql+psycopg://teacher:***@/")
    assert said.count("\n") == 1 and "secret" not in said
