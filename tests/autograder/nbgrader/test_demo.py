"""The demonstration class gets what it is meant to get, and the hostile ones get nothing more.

With it is graded what else of a lab's triad goes through the sandbox by day: functions that return
None, their argument or 0, and what forges the machinery.
"""

import dataclasses
import os
import re
import sqlite3
import subprocess
import sys

import nbcourse
import nbformat
import pytest

from autograder.demo.hostile import READ_ON, READER
from autograder.demo.make_class import STUDENTS, expected_failures, make_class, surprises
from autograder.grading.batch import grade_many
from autograder.intake.discover import discover
from autograder.intake.notebook import parse_notebook
from autograder.labs.manifest import lab_names, load_lab
from autograder.nbgrader.release import generate
from autograder.triad.judge import judge_variant
from autograder.triad.run import a_few, handed_in
from autograder.triad.variants import STUBS, collect_variants

pytestmark = pytest.mark.slow
MIN_SECRET = 40  # shorter lines of the hidden tests stand in anybody's code
LABS = lab_names(nbcourse.ROOT)
# their files are strange and their work is right, or they attack what grades every lab alike: what
# becomes of them does not hang on the lab
ONCE = {"helpers", "messy", "zipped", "not_a_notebook"}
ONCE |= {"hostile_reader", "hostile_forger", "forged_driver"}


@pytest.fixture(scope="module", params=LABS)
def everything(request, tmp_path_factory):
    """(course, lab, results by student) of the class, with gradebook and feedback; rows of a few
    of the triad's variants.

    ONCE are in the class of the first lab only.
    """
    course = tmp_path_factory.mktemp("demo")
    generate(nbcourse.ROOT, request.param, course)
    make_class(course, request.param, course / "submitted")
    lab = load_lab(request.param, course)
    rows = [row for row in discover(course / "submitted", lab) if row.student in expected(lab)]
    endless = [row for row in rows if row.student == "endless_loop"]
    others = [row for row in rows if row.student != "endless_loop"]
    few = {variant.student: variant for variant in a_few(variants_of(course, lab))}
    others += [handed_in(lab, variant) for variant in few.values()]
    results = [*grade_many(lab, others, jobs=2), *grade_many(hasty(lab), endless, jobs=1)]
    judged = [judge_variant(lab, few[r.student], r) for r in results if r.student in few]
    results = [result for result in results if result.student not in few]
    nbcourse.record(course, lab, results, rows)
    return course, lab, {result.student: result for result in results}, judged


@pytest.fixture(scope="module")
def graded(everything):
    """(course, lab, results by student) of the class."""
    return everything[:3]


def variants_of(course, lab):
    """The triad's variants; make_class has built the solved notebook."""
    solved = course / "build" / "source" / lab.name / f"{lab.notebook}.ipynb"
    return collect_variants(lab, parse_notebook(solved.read_bytes()))


def expected(lab):
    """What becomes of those who are in this lab's class."""
    absent = set() if lab.name == LABS[0] else ONCE
    return {s: failed for s, failed in expected_failures(lab).items() if s not in absent}


def surprising(lab, results):
    """The surprises of the class, but for absent ones."""
    absent = {f"{student} has no result" for student in STUDENTS.keys() - expected(lab)}
    found = surprises(lab, list(results))
    assert absent <= set(found)
    return [surprise for surprise in found if surprise not in absent]


def hasty(lab):
    """The lab with a quarter of the time for a call: an endless one uses up all of it."""
    budget = nbcourse.changed(lab.budget, call_seconds=lab.budget.call_seconds / 4)
    return dataclasses.replace(lab, budget=budget)


def test_everyone_gets_what_the_class_is_made_for(graded):
    _, lab, results = graded
    assert surprising(lab, results.values()) == []


def test_work_that_is_none_gets_nothing_and_forgers_no_more(everything):
    *_, judged = everything
    assert len(judged) >= len(STUBS)
    assert not [f"{row.variant.student}: {row.problem}" for row in judged if row.problem]


def test_points_lost_are_those_of_the_tests_that_failed(graded):
    _, lab, results = graded
    for student, failing in expected(lab).items():
        lost = {
            part.exercise: part.max_points - part.points
            for part in results[student].exercises
            if part.points < part.max_points
        }
        assert lost.keys() == (failing or {}).keys(), student
        assert results[student].score == (0 if failing is None else 90 - sum(lost.values()))
        for part in results[student].exercises:
            passed = sum(test.max_points for test in part.tests if test.outcome == "passed")
            assert part.points == pytest.approx(passed)


def test_the_class_has_one_of_each_kind(graded):
    _, lab, results = graded
    assert len(STUDENTS) == 13 and STUDENTS.keys() == expected_failures(lab).keys()
    assert all(hand_in.__doc__ for hand_in in STUDENTS.values())
    partly = [part for part in results["partly_right"].exercises if 0 < part.points]
    assert len(partly) == len(lab.exercises), "what is partly right gets part of the points"


def test_surprises_are_found(graded):
    _, lab, results = graded
    wrong = min(failed for failed in expected_failures(lab)["partly_right"])
    swapped = dict(results)
    swapped["right"] = nbcourse.changed(results["partly_right"], student="right")
    swapped["partly_right"] = nbcourse.changed(results["right"], student="partly_right")
    swapped["empty"] = nbcourse.rejected(lab, "empty", "no notebook")[1]
    del swapped["all_nan"]
    found = "\n".join(surprising(lab, swapped.values()))
    for text in (
        f"right, {wrong}",
        f"partly_right, {wrong}",
        "empty is rejected",
        "all_nan has no result",
    ):
        assert text in found


@pytest.mark.parametrize("everything", LABS[:1], indirect=True)
def test_the_reader_found_nothing(graded):
    _, _, results = graded
    for part in results["hostile_reader"].exercises[1:]:
        said = [test.message for test in part.tests if test.kind == "public"]
        # what stands in place of a kernel is not even called
        assert said and all("LOOT []" in m or "is no kernel" in m for m in said)


def test_the_reader_would_find_what_is_there(tmp_path):
    """Its hunts work: beside a hidden test, a secret and a gradebook they bring them home."""
    (tmp_path / "test_hidden.py").touch()
    with sqlite3.connect(tmp_path / "gradebook.db") as connection:
        connection.execute("create table grade (manual_score)")
        connection.execute("insert into grade values (0)")
    (tmp_path / "below").mkdir()
    hunt = READER.replace('os.walk("/")', f"os.walk({str(tmp_path)!r})")
    hunt = hunt.replace("/proc/[0-9]*/cmdline", "/proc/self/cmdline").replace("1.1.1.1", "::1")
    hunt += "\nexpected = 3\nimport pytest" + READ_ON.replace("NAME", "read_on") + "\nread_on()"
    done = subprocess.run(
        [sys.executable, "-c", hunt, "jupyter"],
        cwd=tmp_path / "below",
        env=os.environ | {"API_KEY": "x"},
        capture_output=True,
        text=True,
    )
    told = done.stderr.rpartition("LOOT ")[2]
    for what in ("files: ", "secrets: API_KEY", "others: ", "frames: expected", "tests: pytest"):
        assert what in told
    assert "gradebook: ../gradebook.db" in told
    with sqlite3.connect(tmp_path / "gradebook.db") as connection:
        assert connection.execute("select manual_score from grade").fetchall() == [(100,)]


def test_nothing_of_the_hidden_tests_is_told(graded):
    course, lab, _ = graded
    text = lab.test_files["hidden"].read_text()
    stated = {test.invariant for test in lab.tests} | {test.cause for test in lab.tests}
    lines = {line.strip() for line in text.splitlines() if len(line.strip()) >= MIN_SECRET}
    source = nbcourse.ROOT / "solutions" / lab.name
    given_away = "".join(path.read_text() for path in source.glob("*.py"))
    secret = [s for s in lines if s not in given_away and not any(quoted(s, t) for t in stated)]
    assert len(secret) > 50
    for folder in ("labs", "autograded", "feedback"):
        for path in (course / folder).rglob("*.*"):
            told = path.read_text() if path.is_file() else ""
            assert not [line for line in secret if line in told], path


def quoted(line: str, text: str) -> bool:
    """Whether a line of a test file holds what feedback says anyway."""
    parts = re.findall(r'"([^"]{10,})"', line)
    return any(part in text for part in parts)


def test_every_student_has_a_page_and_a_notebook_for_formgrader(graded):
    course, lab, _ = graded
    for student in expected(lab):
        page = (course / "feedback" / student / lab.name / f"{lab.notebook}.html").read_text()
        shown = course / "autograded" / student / lab.name / f"{lab.notebook}.ipynb"
        nbformat.validate(nbformat.read(shown, as_version=4))
        assert "<script" not in page and "<img" not in page


@pytest.mark.parametrize("everything", LABS[:1], indirect=True)
def test_the_readers_page_shows_its_scripts_as_text(graded):
    course, lab, _ = graded
    reader = (
        course / "feedback" / "hostile_reader" / lab.name / f"{lab.notebook}.html"
    ).read_text()
    assert "&lt;\u200bscript&gt;document.title" in reader
