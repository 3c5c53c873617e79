"""A teacher's own script grades: it needs no guard, and runs once."""

import subprocess
import sys

from toylab import NAME, answered, make_course, write

SCRIPT = f"""
from pathlib import Path

from autograder.grading.batch import grade_many
from autograder.intake.discover import discover
from autograder.labs.manifest import load_lab

print("this script runs")
lab = load_lab("{NAME}", Path("."))
for result in grade_many(lab, discover(Path("in"), lab), jobs=2):
    print(result.student, result.score)
"""


def test_a_script_without_a_guard_runs_once(tmp_path):
    root = make_course(tmp_path / "course")
    for student in ("ada", "bob"):
        write(root / f"in/{student}.ipynb", answered())
    (root / "script.py").write_text(SCRIPT)
    run = subprocess.run([sys.executable, "script.py"], cwd=root, capture_output=True, text=True)
    assert sorted(run.stdout.split("\n")) == ["", "ada 90.0", "bob 90.0", "this script runs"], run
    assert run.stderr == ""
