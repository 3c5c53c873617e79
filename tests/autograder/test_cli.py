"""The commands: exit codes, one line for wrong usage, tables, the check on one's own machine."""

import json
import shutil
import subprocess
import sys

import pytest
from toylab import NAME, WRONG1, answered, cell, make_course, release, write

from autograder import cli, doctor
from autograder.commands.grade import executor_of
from autograder.commands.tables import show_results
from autograder.errors import UsageError
from autograder.grading.check import CheckError, as_text, check_notebook
from autograder.grading.results import Late, Result, read_report
from autograder.grading.ungraded import fault
from autograder.labs.manifest import load_lab
from autograder.nbgrader.recording import Recorded
from autograder.sandbox.limits import SandboxUnavailable


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = make_course(tmp_path_factory.mktemp("course"))
    write(root / "in/alice/toy.ipynb", answered())
    write(root / "in/bob/toy.ipynb", answered(ex1=WRONG1))
    write(root / "in/carol/toy.ipynb", b"<html>")
    return root


WRONG_USAGE = {
    "no submissions": ["grade", NAME],
    "no such command": ["grades"],
    "no such option": ["grade", NAME, "in", "--fast"],
    "no jobs": ["grade", NAME, "in", "--jobs", "0"],
    "jobs and scheduler": ["grade", NAME, "in", "--jobs", "2", "--scheduler", "tcp://x:1"],
    "no such lab": ["grade", "lab99", "in"],
    "no such folder": ["grade", NAME, "nowhere"],
    "no folder for json": ["grade", NAME, "in", "--json", "nowhere/r.json"],
    "no such course": ["grade", NAME, "in", "--course", "nowhere"],
    "no notebook": ["check", "nowhere.ipynb"],
    "no results": ["report", NAME],
    "no such triad": ["triad", "lab99"],
}


@pytest.mark.parametrize("arguments", WRONG_USAGE.values(), ids=WRONG_USAGE)
def test_wrong_usage_is_one_line_and_code_2(course, monkeypatch, capsys, arguments):
    monkeypatch.chdir(course)
    if "--course" not in arguments and arguments[0] != "check":
        arguments = [*arguments, "--course", str(course)]
    assert cli.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("autograder: ")


HEAVY = ("torch", "nbgrader", "nbconvert", "nbformat", "IPython", "pytest", "sqlalchemy", "efflib")
PRINT_HEAVY = f"print([m for m in {HEAVY} if m in sys.modules])"


def test_help_is_quick_to_come(capsys):
    """--help imports nothing that takes long."""
    code = f"import sys; from autograder.cli import run; run(['--help']); {PRINT_HEAVY}"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.endswith("[]\n")
    for command in ("doctor", "release", "grade", "report", "check", "triad"):
        assert f"\n  {command} " in out.stdout


def test_the_course_is_found_upwards(tmp_path, monkeypatch):
    make_course(tmp_path)
    write(tmp_path / "nbgrader_config.py", b"")
    (tmp_path / "labs" / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "labs" / "deep")
    assert cli.course_folder(None) == tmp_path.resolve()


def test_no_sandbox_is_code_1_with_the_remedy(course, monkeypatch, capsys):
    def unavailable(*_, **__):
        raise SandboxUnavailable("bwrap is missing;\ninstall bubblewrap")

    monkeypatch.setattr("autograder.commands.grade.grade_many", unavailable)
    arguments = ["grade", NAME, str(course / "in"), "--course", str(course)]
    assert cli.run(arguments) == 1
    assert capsys.readouterr().err == "autograder: bwrap is missing; install bubblewrap\n"


@pytest.mark.parametrize("address", ["nonsense://x", "tcp://127.0.0.1:1"])
def test_no_scheduler_is_told_in_one_line(address, monkeypatch):
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    monkeypatch.setattr("autograder.commands.grade.CONNECT_SECONDS", 1)
    with pytest.raises(UsageError, match="no Dask scheduler"), executor_of(address):
        pass


@pytest.mark.slow
def test_grade_writes_everything_and_ends_with_0_whatever_the_grades(course, capsys):
    report = course / "results.json"
    arguments = ["grade", NAME, str(course / "in"), "--json", str(report), "--course", str(course)]
    assert cli.run(arguments) == 0
    table = capsys.readouterr().out
    for words in ("score / 90", "ex1 / 50", "alice", "90", "bob", "60", "not a notebook"):
        assert words in table
    results = read_report(report).results
    assert [(r.student, r.score, r.status) for r in results] == [
        ("alice", 90, "graded"),
        ("bob", 60, "graded"),
        ("carol", 0, "rejected"),
    ]
    assert json.loads(report.read_text())["schema"] == 2
    assert (course / "gradebook.db").is_file()
    for student in ("alice", "bob", "carol"):
        assert (course / "autograded" / student / NAME / "toy.ipynb").is_file()
        assert list((course / "feedback" / student / NAME).glob("*.html"))


@pytest.mark.slow
def test_a_second_run_is_silent_and_writes_nothing_and_a_regrade_tells_what_it_changed(
    course, tmp_path, capsys
):
    root = tmp_path / "course"
    shutil.copytree(course, root)
    arguments = ["grade", NAME, str(root / "in"), "--course", str(root)]
    assert cli.run(arguments) == 0
    table = capsys.readouterr().out
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert cli.run(arguments) == 0
    assert capsys.readouterr().out == table
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    hidden = root / f"autograder/suites/{NAME}/test_hidden.py"
    hidden.write_text(hidden.read_text().replace("2 * v for v in x", "-2 * v for v in x"))
    assert cli.run([*arguments, "--regrade"]) == 0
    told = capsys.readouterr().out
    assert "alice: 90 -> 60 of 90 points (another suite)" in told
    assert "  ex1 hidden test_scale_negative: passed, 30 of 30 -> failed, 0 of 30" in told
    assert "bob: 60 -> 90" in told and "carol:" not in told and "ex2 hidden" not in told


def test_what_is_not_recorded_is_told_in_the_table_and_ends_with_1(course, monkeypatch, capsys):
    def unrecorded(root, lab, rows, results, older):
        yield from (Recorded(result, "the disk is full") for result in results)

    monkeypatch.setattr("autograder.nbgrader.recording.record", unrecorded)
    alone = ["grade", NAME, str(course / "in/carol"), "--course", str(course)]
    assert cli.run(alone) == 1
    out, err = capsys.readouterr()
    assert "not recorded: the disk is full" in out
    assert err.startswith("autograder: not recorded: toy (the disk is full). What is graded is")
    assert err.count("\n") == 1


def test_a_report_that_cannot_be_written_is_told_in_one_line(course, tmp_path, capsys):
    alone = ["grade", NAME, str(course / "in/carol"), "--course", str(course)]
    assert cli.run([*alone, "--json", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert err == f"autograder: {tmp_path}: a folder stands where a file belongs: move it away\n"


def test_a_folder_that_cannot_hold_a_gradebook_is_told_in_one_line(course, tmp_path, capsys):
    root = tmp_path / "course"
    shutil.copytree(course, root)
    (root / "gradebook.db").unlink(missing_ok=True)
    (root / "gradebook.db").mkdir()
    assert cli.run(["grade", NAME, str(root / "in"), "--course", str(root)]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"autograder: the gradebook {root}/gradebook.db: ")
    assert err.count("\n") == 1


def test_the_table_counts_notes_and_shows_what_was_taken_off(course, capsys):
    lab = load_lab(NAME, course)
    one = Result(student="eve", lab=NAME, status="graded", max_score=90, notes=("x",), score=90)
    two = Result(student="fay", lab=NAME, status="graded", max_score=90, notes=("x", "y"))
    show_results(lab, [Recorded(one, late=Late(95.0, 45.0, 60.0)), Recorded(two)])
    table = capsys.readouterr().out
    assert "95 - 45 = 50" in table
    show_results(lab, [Recorded(one, late=Late(90.0, 0.0, 7200.0))])
    assert "2 h: nothing taken off" in capsys.readouterr().out.replace("\n", " ")
    assert "1 note " in table and "2 notes" in table and "1 notes" not in table
    show_results(lab, [Recorded(two)])
    assert "late" not in capsys.readouterr().out


def test_the_table_marks_faults_and_missing_sandboxes(course, capsys):
    lab = load_lab(NAME, course)
    submission = type("S", (), {"student": "dave", "digest": "0"})
    unsafe = Result(student="eve", lab=NAME, status="graded", max_score=90, sandbox="none")
    show_results(lab, [Recorded(fault(lab, submission, "[bold]crash[/bold]")), Recorded(unsafe)])
    table = capsys.readouterr().out
    assert "dave" in table and "?" in table and "grader fault: [bold]crash[/bold]" in table
    assert "(no sandbox)" in table


# ---- check --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_check_runs_the_public_tests_as_grading_would(course, capsys):
    nb = answered(ex1="def scale(numbers, factor):\n    return late(numbers, factor)")
    nb["cells"].append(cell("code", "1 / 0"))
    path = write(course / "labs" / NAME / "mine.ipynb", nb)
    try:
        assert cli.run(["check", str(path), "--course", str(course)]) == 0
    finally:
        path.unlink()
    text = capsys.readouterr().out
    assert "ex1, Scale · 0 of 20 points" in text and "'late' is not defined" in text
    assert "ex2, Clip · 15 of 15 points" in text
    assert "without a sandbox" in text and "30 more points by hidden tests" in text
    assert "cell 9: ZeroDivisionError" in text and "SECRET-CANARY" not in text


@pytest.mark.slow
def test_check_finds_the_lab_that_the_notebook_names(course, tmp_path):
    checked = check_notebook(write(tmp_path / "elsewhere.ipynb", answered()), course)
    assert [r.outcome for r in checked.reports] == ["passed", "passed"]
    assert checked.notes == [] and "Notes" not in as_text(checked)


@pytest.mark.parametrize(
    "content, why",
    [(b"", "empty"), (b"{}", "no list"), (json.dumps(release()).encode(), "no test")],
)
def test_check_says_what_is_missing(tmp_path, content, why):
    with pytest.raises(CheckError, match=why):
        check_notebook(write(tmp_path / "x.ipynb", content), tmp_path)


# ---- doctor -------------------------------------------------------------------------------------


def test_doctor_names_what_is_wrong(course, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "autograder.sandbox.diagnose.diagnose", lambda: [("sandbox", True, "works")]
    )
    monkeypatch.setattr(doctor, "PACKAGES", ("torch", "no-such-package"))
    rows = {name: (well, detail) for name, well, detail in doctor.examine(tmp_path)}
    assert rows["torch"][0] and rows["sandbox"] == (True, "works")
    assert rows["no-such-package"] == (False, "not installed: make setup")
    assert not rows["course"][0] and "--course" in rows["course"][1]
    rows = {name: (well, detail) for name, well, detail in doctor.examine(course)}
    assert rows[NAME] == (True, "4 tests, 90 points, 10 more by hand")
    assert cli.run(["doctor", "--course", str(course)]) == 1
    assert "[fail] no-such-package" in capsys.readouterr().out


@pytest.mark.slow
def test_grading_what_is_graded_already_imports_little(course, tmp_path):
    root = tmp_path / "course"
    shutil.copytree(course, root)
    arguments = ["grade", NAME, str(root / "in"), "--course", str(root)]
    assert cli.run(arguments) == 0
    code = f"import sys; from autograder.cli import run; run({arguments}); {PRINT_HEAVY}"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.splitlines()[-1].strip("[]").replace("'", "").split(", "))
    assert not loaded & {"torch", "pytest", "IPython", "efflib"}, loaded
