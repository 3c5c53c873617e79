"""What a suite needs is imported before a server or a zygote forks, and nowhere else."""

import subprocess
import sys
from pathlib import Path

import pytest
from toylab import NAME, answered, make_course, write

from autograder.labs.manifest import load_lab

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
LABS = sorted(path.parent.name for path in ROOT.glob("autograder/suites/*/manifest.toml"))
MANY = 60  # modules: sympy alone has 400, torch._dynamo brings 900
OURS = {"efflib.lab.lab", "efflib.lab.predict", "efflib.models.llama"}  # the slow ones of ours
SCRIPT = """
import os, sys
from pathlib import Path
from autograder.grading.ready import ready_to_grade
from autograder.grading.rebuild import rebuild
from autograder.grading.verdict import run_timed, sandbox_spec
from autograder.intake.notebook import parse_notebook
from autograder.labs.manifest import load_lab
from autograder.labs.source import build_source
from autograder.sandbox.remote import RemoteStudent

root, name, said = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
lab = load_lab(name, root)
solved = parse_notebook(build_source(root, name, Path(sys.argv[4])).read_bytes())
cells = rebuild(solved, parse_notebook(lab.release_notebook.read_bytes())).cells

def inside(student):
    import sys

    return list(sys.modules)

def serve():
    pid = os.fork()
    if pid == 0:
        before = set(sys.modules)
        loaded = set(RemoteStudent(sandbox_spec(lab, False), [], lab.budget).drive(inside))
        student = RemoteStudent(sandbox_spec(lab, False), cells, lab.budget)
        run_timed(list(lab.test_files.values()), student, 0)
        here, there = set(sys.modules) - before, set(student.drive(inside)) - loaded
        os.write(said, "\\n".join(" ".join(sorted(x)) for x in (here, there)).encode())
        os._exit(0)
    os.waitpid(pid, 0)

ready_to_grade(lab, False, serve)
os._exit(0)
"""

GRADING = """
import sys
from pathlib import Path
from autograder.commands.grade import grade_class

[result] = grade_class(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[1]) / "in", jobs=1)
assert result.status == "graded"
assert "torch" not in sys.modules
"""

READY = """
import sys
from pathlib import Path
from autograder.grading.ready import ready_to_grade
from autograder.labs.manifest import load_lab
from autograder.sandbox import ahead

lab, seen = load_lab(sys.argv[2], Path(sys.argv[1])), []
ahead.make = lambda: seen.append("torch" in sys.modules)
ready_to_grade(lab, False, lambda: seen.append("served"))
assert seen == [False, "served"], seen
assert "torch" in sys.modules
"""


def test_who_shares_the_work_out_does_without_torch(tmp_path):
    """It would take two seconds of every batch, and 200 MB."""
    root = make_course(tmp_path)
    write(root / "in/ada.ipynb", answered())
    load_lab(NAME, root)  # keeps what the suites declare, which only torch can tell
    subprocess.run([sys.executable, "-c", GRADING, root, NAME], check=True)
    assert list(root.glob("feedback/ada/*/*.html"))


def test_the_zygote_is_asked_for_before_torch_is_imported(tmp_path):
    """So both import it at once."""
    root = make_course(tmp_path)
    load_lab(NAME, root)
    subprocess.run([sys.executable, "-c", READY, root, NAME], check=True)


@pytest.mark.parametrize("name", LABS)
def test_a_child_imports_no_library(name, tmp_path):
    said, script = tmp_path / "modules", tmp_path / "script.py"  # a driver's text is read in a file
    script.write_text(SCRIPT)
    with said.open("wb") as file:
        command = [sys.executable, script, ROOT, name, str(file.fileno()), tmp_path]
        subprocess.run(command, check=True, pass_fds=[file.fileno()], stdout=subprocess.DEVNULL)
    assert said.read_text(), "the child did not come to its end"
    for who, line in zip(("child", "sandbox"), said.read_text().split("\n"), strict=True):
        found = line.split()
        assert len(found) < MANY, f"{who}: {len(found)} modules, from {found[0]} to {found[-1]}"
        assert not OURS.intersection(found), who
