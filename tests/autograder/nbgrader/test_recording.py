"""Results are recorded as they come; one that cannot be is that student's row; nothing twice."""

import dataclasses
import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import nbcourse
import pytest
from nbgrader.api import Gradebook

from autograder.errors import StorageError
from autograder.nbgrader import executed
from autograder.nbgrader.database import check_version
from autograder.nbgrader.release import release

pytestmark = pytest.mark.slow

STUDENTS = ("ada", "bob", "cleo", "dora")


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    root = nbcourse.make_course(tmp_path_factory.mktemp("course"))
    release(root)
    return root


@pytest.fixture
def course(released, tmp_path):
    """A course of its own (a copy: releasing takes seconds), its lab, rows and results."""
    root = tmp_path / "course"
    shutil.copytree(released, root)
    return (root, *made_class(nbcourse.load(root)))


def made_class(lab):
    rows = [nbcourse.submission(lab, nbcourse.right(lab), student) for student in STUDENTS]
    results = [nbcourse.graded(lab, row) for row in rows]
    results[1] = nbcourse.graded(lab, rows[1], ("test_clip_bounds",))
    return lab, rows, results


def files(root):
    """Name -> (content, when written) of everything that recording writes."""
    made = ("autograded", "feedback", "marking")
    paths = [path for name in made for path in (root / name).rglob("*") if path.is_file()]
    stats = {path: path.stat() for path in (*paths, root / "gradebook.db")}
    return {str(path): (path.read_bytes(), told.st_mtime_ns) for path, told in stats.items()}


def rows_of(root):
    """All rows of the gradebook by student, without the ids that are drawn at random."""
    with Gradebook(f"sqlite:///{root}/gradebook.db", "efficient-llm") as gradebook:
        found = {}
        for submission in gradebook.assignment_submissions(nbcourse.LAB):
            [notebook] = submission.notebooks
            grades = {g.name: (g.auto_score, g.manual_score, g.needs_manual_grade)
                      for g in notebook.grades}  # fmt: skip
            said = {c.name: (c.auto_comment, c.manual_comment) for c in notebook.comments}
            found[submission.student.id] = (submission.score, grades, said)
        assert {student.id for student in gradebook.students} == found.keys()
        return found


def troubles(recorded):
    return {row.result.student: row.trouble for row in recorded if row.trouble}


def test_what_has_come_is_recorded_before_the_next_is_graded(course):
    root, lab, rows, results = course

    def graded():
        for result in results:
            yield result
            page = root / "feedback" / result.student / lab.name / "toy.html"
            assert result.student in rows_of(root) and page.is_file()

    assert troubles(nbcourse.recorded(root, lab, graded(), rows)) == {}


def test_an_interrupted_run_has_recorded_what_it_graded(course):
    root, lab, rows, results = course

    def graded():
        yield from results[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nbcourse.recorded(root, lab, graded(), rows)
    assert rows_of(root).keys() == {"ada", "bob"}
    assert (root / "feedback" / "bob" / lab.name / "toy.html").is_file()


def test_a_second_time_nothing_is_written(course):
    root, lab, rows, results = course
    nbcourse.record(root, lab, results, rows)
    before = files(root)
    assert len(before) == 2 * len(STUDENTS) + 2
    later = [nbcourse.changed(result, started="later", seconds=9.0) for result in results]
    nbcourse.record(root, lab, later, rows)
    assert files(root) == before


def test_what_changed_is_written_and_nothing_else(course):
    root, lab, rows, results = course
    nbcourse.record(root, lab, results, rows)
    before = files(root)
    results[2] = nbcourse.graded(lab, rows[2], ("test_scale_negative",))
    nbcourse.record(root, lab, results, rows)
    changed = {Path(name).relative_to(root).parts[:2] for name, what in files(root).items()
               if before[name] != what}  # fmt: skip
    expected = {("autograded", "cleo"), ("feedback", "cleo"), ("gradebook.db",)}
    assert changed == expected | {("marking", lab.name)}, "marking names what it is made from"


@pytest.mark.parametrize("gone", ["gradebook.db", "autograded/bob", "feedback/bob", "marking"])
def test_what_is_missing_is_made_again(course, gone):
    root, lab, rows, results = course
    nbcourse.record(root, lab, results, rows)
    before, names = rows_of(root), files(root).keys()
    path = root / gone
    path.unlink() if path.is_file() else shutil.rmtree(path)
    nbcourse.record(root, lab, results, rows)
    assert rows_of(root) == before and files(root).keys() == names


def test_a_comment_or_score_by_hand_makes_the_page_anew(course):
    root, lab, rows, results = course
    nbcourse.record(root, lab, results, rows)
    with Gradebook(f"sqlite:///{root}/gradebook.db", "efficient-llm") as gradebook:
        gradebook.find_comment("w1", "toy", lab.name, "ada").manual_comment = "Say more."
        gradebook.find_grade("w1", "toy", lab.name, "bob").manual_score = 4
        gradebook.db.commit()
    nbcourse.record(root, lab, results, rows)
    pages = {s: (root / "feedback" / s / lab.name / "toy.html").read_text() for s in STUDENTS}
    assert "Say more." in pages["ada"] and "69 of 100 points" in pages["bob"]


# ---- faults -------------------------------------------------------------------------------------


def test_one_student_s_error_is_that_student_s_row(course, monkeypatch):
    root, lab, rows, results = course
    real = executed.executed_notebook

    def broken(lab, result, *rest):
        if result.student == "bob":
            raise ZeroDivisionError("a bug")
        return real(lab, result, *rest)

    monkeypatch.setattr(executed, "executed_notebook", broken)
    recorded = nbcourse.recorded(root, lab, results, rows)
    assert troubles(recorded) == {"bob": "ZeroDivisionError: a bug"}
    assert [row.result.student for row in recorded] == list(STUDENTS)
    monkeypatch.undo()
    nbcourse.record(root, lab, results, rows)
    assert rows_of(root).keys() == set(STUDENTS)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_disk_that_fails_is_told_with_its_file(course, monkeypatch, number):
    root, lab, rows, results = course

    def fails(path, content):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr("autograder.nbgrader.pages.write_file", fails)
    told = troubles(nbcourse.recorded(root, lab, results, rows))
    assert told.keys() == set(STUDENTS)
    assert told["ada"].startswith(f"{root}/feedback/ada/{lab.name}/toy.html: ")
    assert rows_of(root).keys() == set(STUDENTS), "what can be recorded is"


FULL_DISK = """
import shutil, sys
sys.path.insert(0, {here!r})
from pathlib import Path
import nbcourse, test_recording
root = Path({disk!r}) / "course"
shutil.copytree({course!r}, root)
lab, rows, results = test_recording.made_class(nbcourse.load(root))
nbcourse.record(root, lab, results[:1], rows)
fill = root / "fill"
with fill.open("wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError:
        pass
for name, said in test_recording.troubles(nbcourse.recorded(root, lab, results, rows)).items():
    print(name, said)
fill.unlink()
nbcourse.record(root, lab, results, rows)
print(sorted(test_recording.rows_of(root)))
"""


def test_a_full_disk_costs_rows_until_there_is_room_again(released, tmp_path):
    disk, script = tmp_path / "disk", tmp_path / "script.py"
    disk.mkdir()
    here = str(Path(__file__).parent)
    script.write_text(FULL_DISK.format(here=here, disk=str(disk), course=str(released)))
    small = ["bwrap", "--dev-bind", "/", "/", "--size", "3000000", "--tmpfs", str(disk)]
    done = subprocess.run([*small, sys.executable, str(script)], capture_output=True, text=True)
    full = f"the gradebook {disk}/course/gradebook.db: the disk is full: make room there"
    lines = [f"{student} {full}" for student in STUDENTS[1:]]
    assert done.stdout.splitlines() == [*lines, str(list(STUDENTS))], done.stderr
    assert "Traceback" not in done.stderr


def test_a_locked_gradebook_costs_rows_and_no_traceback(course, monkeypatch, caplog, capfd):
    root, lab, rows, results = course
    nbcourse.record(root, lab, results[:1], rows)
    monkeypatch.setattr("sqlite3.dbapi2.connect", with_timeout(sqlite3.dbapi2.connect, 0.1))
    other = sqlite3.connect(root / "gradebook.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    told = troubles(nbcourse.recorded(root, lab, results, rows))
    assert told.keys() == {"bob", "cleo", "dora"}, "ada's rows stand there already"
    assert told["bob"] == (
        f"the gradebook {root}/gradebook.db: another program is writing to it: close that, then "
        "run this again"
    )
    assert "Traceback" not in caplog.text + "".join(capfd.readouterr())
    other.execute("ROLLBACK")
    nbcourse.record(root, lab, results, rows)


def with_timeout(connect, seconds):
    return lambda *args, **options: connect(*args, **options | {"timeout": seconds})


def damage(root, how):
    path = root / "gradebook.db"
    if how == "not a database":
        path.write_bytes(b"no database" * 100)
        return
    with sqlite3.connect(path) as connection:
        if how == "older":
            connection.execute("UPDATE alembic_version SET version_num = '50a4d84c131a'")
        elif how == "newer":
            connection.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
        elif how == "unversioned":
            connection.execute("DROP TABLE alembic_version")


OTHER = (
    "made by another version of nbgrader: copy it to a safe place, then run `nbgrader db upgrade`"
)
DAMAGES = {"older": OTHER, "newer": OTHER, "unversioned": OTHER, "not a database": "damaged"}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_gradebook_that_cannot_be_used_stops_before_grading(course, how):
    root, lab, rows, results = course
    damage(root, how)
    before = (root / "gradebook.db").read_bytes()

    def graded():
        raise AssertionError("graded in vain")
        yield

    with pytest.raises(StorageError, match=DAMAGES[how]) as told:
        nbcourse.recorded(root, lab, graded(), rows)
    assert f"{root}/gradebook.db" in str(told.value) and "\n" not in str(told.value)
    assert (root / "gradebook.db").read_bytes() == before


# ---- killed -------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
sys.path.insert(0, {here!r})
from pathlib import Path
import nbcourse, test_recording
from autograder.nbgrader import database, executed, folders, gradebook, pages, recording
root, where, whom = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
lab, rows, results = test_recording.made_class(nbcourse.load(root))
student = ""

def deadly(module, name):
    real = getattr(module, name)
    def function(*arguments, **options):
        if student == whom:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    setattr(module, name, function)

def graded():
    global student
    for result in results:
        student = result.student
        yield result

deadly(sys.modules["autograder.nbgrader." + where.split(".")[0]], where.split(".")[1])
nbcourse.recorded(root, lab, graded(), rows)
"""
PLACES = ["gradebook.set_score", "gradebook.take_off_for_lateness", "recording.write_executed"]
PLACES += ["executed.write_folder", "recording.write_page", "pages.write_file"]


@pytest.mark.parametrize("where", PLACES)
def test_kill_9_leaves_no_half_rows_and_going_on_gives_the_same(course, tmp_path, where):
    root, lab, rows, results = course
    whole = tmp_path / "whole"
    shutil.copytree(root, whole)
    nbcourse.record(whole, lab, results, rows)
    script = tmp_path / "script.py"
    script.write_text(KILLED.format(here=str(Path(__file__).parent)))
    done = subprocess.run([sys.executable, str(script), str(root), where, "bob"])
    assert done.returncode == -signal.SIGKILL
    kept, expected = rows_of(root), rows_of(whole)
    assert kept == {student: expected[student] for student in kept}, "whole rows or none"
    assert {"ada"} <= kept.keys() <= {"ada", "bob"}
    nbcourse.record(root, lab, results, rows)
    assert rows_of(root) == expected
    names = {str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file()}
    assert {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} == names
    for student in STUDENTS:
        page = Path("feedback", student, lab.name, "toy.html")
        assert (root / page).read_bytes() == (whole / page).read_bytes()


def test_names_of_people_reach_formgrader_and_what_stands_there_stays(course):
    root, lab, rows, results = course
    names = ("Ada Lovelace King", "Byron, Bob <b>'s</b>", "", "Dora")
    rows = [dataclasses.replace(row, name=name) for row, name in zip(rows, names, strict=True)]
    with Gradebook(f"sqlite:///{root}/gradebook.db", "efficient-llm") as gradebook:
        gradebook.update_or_create_student("dora", first_name="D.", last_name="by hand")
    nbcourse.record(root, lab, results, rows)
    before = files(root)
    nbcourse.record(root, lab, results, rows)
    assert files(root) == before
    with Gradebook(f"sqlite:///{root}/gradebook.db", "efficient-llm") as gradebook:
        told = {s.id: (s.first_name, s.last_name) for s in gradebook.students}
    assert told == {
        "ada": ("Ada Lovelace", "King"),
        "bob": ("Bob b's/b", "Byron"),
        "cleo": (None, None),
        "dora": ("D.", "by hand"),
    }


def test_a_new_gradebook_has_the_tables_that_nbgrader_makes(tmp_path):
    def tables(name):
        with sqlite3.connect(tmp_path / name) as connection:
            made = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
            version = connection.execute("SELECT * FROM alembic_version").fetchall()
        return [" ".join((sql or "").split()) for (sql,) in made], version

    with Gradebook(f"sqlite:///{tmp_path}/theirs.db", "course"):
        pass
    check_version(f"sqlite:///{tmp_path}/ours.db")
    assert tables("ours.db") == tables("theirs.db")
    check_version(f"sqlite:///{tmp_path}/ours.db")  # and finds it in order
