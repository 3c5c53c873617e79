"""A class of 200, messy, hostile and damaged, under names as an LMS writes them: make test-soak.

Every student gets a row and a page, nothing is lost, and a coordinator that is killed in the middle
changes nothing.  STUDENTS and KILLS may be set smaller for a first look.
"""

import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from damage import hand_in
from disturbed import in_file

from autograder.demo.make_class import make_kit
from autograder.grading.results import read_report
from autograder.labs.manifest import load_lab
from autograder.labs.source import build_source
from autograder.nbgrader.release import generate

ROOT = Path(__file__).parents[2]
LAB = "lab01_quantization"
STUDENTS, KILLS = int(os.environ.get("STUDENTS", 200)), int(os.environ.get("KILLS", 5))
FIRST = ["Anna", "Zoë", "李", "Mary-Jane", "O", "José", "Ågot", "Иван", "محمد", "x"]
LAST = ["Müller", "o'Hara", "伟", "van der Berg", "Smith", "Nguyễn", "Ng", "D'Angelo", "Šimić", "Y"]


def roster() -> list[tuple[str, str]]:
    """(id, name) of everyone; no two have one name."""
    pairs = [(first, last) for first in FIRST for last in LAST]
    names = [f"{first} {last}" + " II" * (i // 100) for i, (first, last) in enumerate(2 * pairs)]
    return [(f"s{i:04d}", name) for i, name in enumerate(names[:STUDENTS])]


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory) -> tuple[Path, Path]:
    """(folder with Moodle's folder names, roster.csv)."""
    folder, course = tmp_path_factory.mktemp("class"), tmp_path_factory.mktemp("released")
    generate(ROOT, LAB, course)
    lab = load_lab(LAB, course)
    kit = make_kit(lab, build_source(ROOT, LAB, course))
    with (folder / "roster.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "name"), *roster()])
    for number, (student, name) in enumerate(roster()):
        moodle = f"{name}_{700000 + number}_assignsubmission_file_"
        print(student, hand_in(kit, folder / "handed_in" / moodle, number))
    return folder / "handed_in", folder / "roster.csv"


def new_course(folder: Path) -> Path:
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    generate(ROOT, LAB, folder)
    return folder


def grading(course: Path, handed_in: tuple[Path, Path]) -> subprocess.Popen:
    """`autograder grade` in a session of its own, as a shell would start it."""
    command = [sys.executable, "-m", "autograder.cli", "grade", LAB, str(handed_in[0])]
    command += ["--roster", str(handed_in[1]), "--json", str(course / "results.json")]
    log = (course / "log.txt").open("ab")
    return subprocess.Popen(
        [*command, "--course", str(course)],
        stdout=log,
        stderr=log,
        cwd=ROOT,
        start_new_session=True,
    )


def stored(course: Path) -> int:
    return sum(1 for _ in (course / "build" / "results").rglob("*.json"))


@pytest.fixture(scope="module")
def undisturbed(handed_in, tmp_path_factory) -> Path:
    course = new_course(tmp_path_factory.mktemp("undisturbed"))
    assert grading(course, handed_in).wait() == 0, (course / "log.txt").read_text()
    return course


def test_everyone_has_a_row_and_a_page(undisturbed):
    students = {student for student, _ in roster()}
    results = read_report(undisturbed / "results.json").results
    assert [result.student for result in results] == sorted(students)
    assert not [result for result in results if result.status == "fault"]
    pages = {path.parts[-3] for path in undisturbed.glob(f"feedback/*/{LAB}/*.html")}
    assert pages == students
    assert {row[0] for row in in_file(undisturbed)} == students
    assert "Traceback" not in (undisturbed / "log.txt").read_text()


def test_a_killed_coordinator_changes_nothing(undisturbed, handed_in, tmp_path):
    course, rng = new_course(tmp_path), random.Random(0)
    share = stored(undisturbed) // (KILLS + 2)  # who handed in nothing to grade has no result
    for kill in range(KILLS):
        run, before = grading(course, handed_in), stored(course)
        while stored(course) < before + share and run.poll() is None:
            time.sleep(rng.random())
        assert run.poll() is None, f"kill {kill} came too late: {(course / 'log.txt').read_text()}"
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert grading(course, handed_in).wait() == 0, (course / "log.txt").read_text()
    assert in_file(course) == in_file(undisturbed)
    points = [
        {result.student: (result.score, result.reason, result.notes) for result in report.results}
        for report in (read_report(folder / "results.json") for folder in (course, undisturbed))
    ]
    assert points[0] == points[1]
