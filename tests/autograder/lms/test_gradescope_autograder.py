"""The zip for Gradescope, unpacked into a folder like its container's, without a sandbox there."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from toylab import NAME, WRONG1, answered, cell, make_course, write

from autograder import cli
from autograder.grading.results import Result
from autograder.lms.gradescope import as_results, student_of

ROOT = Path(__file__).parents[3]
RUN = "import sys; from pathlib import Path; from autograder.lms import gradescope; "
RUN += "gradescope.sandbox_works = lambda: False; gradescope.main(sys.argv[1], Path(sys.argv[2]))"
SPY = "def readable(path):\n    return open(path).read()\n\nprint(readable({path!r}))"


@pytest.fixture(scope="module")
def zipped(tmp_path_factory):
    root = make_course(tmp_path_factory.mktemp("course"))
    shutil.copyfile(ROOT / "constraints.txt", root / "constraints.txt")
    out = root / "gradescope.zip"
    assert cli.run(["gradescope", NAME, str(out), "--course", str(root)]) == 0
    return out


@pytest.fixture
def container():
    """A folder that other users may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_the_zip_holds_one_lab_and_what_grades_it(zipped):
    with zipfile.ZipFile(zipped) as archive:
        names = archive.namelist()
        runs = [i.filename for i in archive.infolist() if i.external_attr >> 16 & 0o111]
        pins = archive.read("constraints.txt").decode()
    assert runs == ["run_autograder", "setup.sh"]
    suites = {name for name in names if "/suites/" in name}
    assert suites == {f"autograder/suites/{NAME}/{n}" for n in ("manifest.toml", "test_hidden.py")}
    for wanted in (f"labs/{NAME}/toy.ipynb", "efflib/lab/runner.py", "requirements.txt", "lab"):
        assert wanted in names
    assert not [n for n in names if "/triad/" in n or "solutions" in n or "__pycache__" in n]
    assert "\ntorch==" in pins and "triton==" not in pins
    for script in ("setup.sh", "run_autograder"):
        path = ROOT / "autograder" / "lms" / "gradescope_files" / script
        assert subprocess.run(["bash", "-n", path]).returncode == 0


def can_be_another_user() -> bool:
    if os.geteuid() or not shutil.which("setpriv"):
        return False
    ids = ["--reuid=65534", "--regid=65534", "--clear-groups"]
    done = subprocess.run(["setpriv", *ids, "--", sys.executable, "-c", "import torch"])
    return done.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_be_another_user(), reason="not root, or no other user can run Python")
def test_student_code_is_graded_as_a_user_who_reads_no_test(zipped, container):
    source = container / "source"
    with zipfile.ZipFile(zipped) as archive:
        archive.extractall(source)
    source.chmod(0o700)
    secret = source / "autograder" / "suites" / NAME / "test_hidden.py"
    submitted = answered(ex1=WRONG1)
    submitted["cells"].insert(3, cell("code", SPY.format(path=str(secret)), cell_id="spy"))
    write(container / "submission" / "toy.ipynb", submitted)
    users = [{"sid": "s01", "email": "a@uni.edu", "name": "Ada"}]
    write(container / "submission_metadata.json", {"id": 7, "users": users})
    (container / "results").mkdir(mode=0o700)
    (container / "cache" / "efflib-autograder").mkdir(parents=True, mode=0o755)
    subprocess.run(
        [sys.executable, "-B", "-c", RUN, NAME, str(container)],
        cwd=source,
        env=os.environ
        | {
            "PYTHONPATH": str(source),
            "XDG_CACHE_HOME": str(container / "cache"),
            "AUTOGRADER_STUDENT_USER": "nobody",
        },
        check=True,
    )
    told = json.loads((container / "results" / "results.json").read_text())
    assert told["score"] == 60 and told["extra_data"]["sandbox"] == "none"
    assert "PermissionError" in told["output"] and "SECRET" not in json.dumps(told)
    scores = {test["name"]: (test["score"], test["status"]) for test in told["tests"]}
    assert scores["ex1: scale negative (hidden)"] == (0, "failed")
    assert scores["ex2: clip by hand"] == (15, "passed")
    hidden = next(test for test in told["tests"] if test["name"] == "ex1: scale negative (hidden)")
    assert "rule: negative numbers are multiplied too\nusual cause: abs" in hidden["output"]


def test_students_have_the_ids_that_the_intake_gives_them():
    assert student_of({"users": [{"sid": "s01", "email": "a@b.c", "name": "A B"}]}) == "s01"
    assert student_of({"users": [{"sid": "", "email": "a@b.c", "name": "A B"}]}) == "a@b.c"
    assert student_of({"users": [{"sid": None, "name": "Anna Müller"}]}).startswith("anna-muller-")
    assert student_of({"id": 12}) == "submission-12"


def test_what_cannot_be_graded_is_0_with_the_reason_and_a_fault_is_no_grade():
    lost = Result(student="a", lab=NAME, status="rejected", reason="not a notebook", max_score=90)
    assert as_results(lost)["score"] == 0 and as_results(lost)["output"] == "not a notebook"
    fault = Result(student="a", lab=NAME, status="fault", reason="broken", max_score=90)
    with pytest.raises(RuntimeError, match="not graded: broken"):
        as_results(fault)


def test_nothing_is_written_over(zipped, capsys):
    root = zipped.parent
    assert cli.run(["gradescope", NAME, str(zipped), "--course", str(root)]) == 2
    assert "exists already" in capsys.readouterr().err
