"""otter-grader 7 for benchmarks/grading.py, in an environment of its own below build/."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from autograder.labs.manifest import load_lab

ROOT = Path(__file__).parents[1]
OTTER = ROOT / "build" / "otter"
OTTER_TEST = """OK_FORMAT = False
from otter.test_files import test_case
name, points = {name!r}, 1

@test_case()
def test_visible(env):
    exec("lab.check({name!r})", env)  # lab looks for the functions where it is called
"""


def make(folder: Path, lab: str, run: Callable) -> None:
    """An environment with otter-grader of its own; torch and the rest are those of this one."""
    python = OTTER / "bin" / "python"
    if not python.is_file():
        run(([sys.executable, "-m", "venv", OTTER], ROOT))
        run(([python, "-m", "pip", "install", "--quiet", "otter-grader==7.*", "ipykernel"], ROOT))
        [site] = OTTER.glob("lib/python*/site-packages")
        [here] = Path(sys.prefix).glob("lib/python*/site-packages")
        (site / "zz_course.pth").write_text(f"{here}\n{ROOT}\n")
    tests = folder / "tests"
    tests.mkdir()
    for name in load_lab(lab, ROOT).exercises:
        (tests / f"{name}.py").write_text(OTTER_TEST.format(name=name))
    generate = [python, "-m", "otter", "generate", "-t", tests, "-o", folder / "autograder.zip"]
    run(([*generate, "--no-environment"], folder))


def grade(
    run: Callable, students: Callable, topic: str, folder: Path, jobs: int
) -> tuple[float, float]:
    """`otter run` for each student, one after the other: its images need Docker."""
    total = [0.0, 0.0]
    for student in students(folder):
        out = folder / "run" / student.name
        shutil.copytree(next(student.iterdir()), out)
        command = [OTTER / "bin" / "python", "-m", "otter", "run", out / topic]
        took = run(([*command, "-a", folder / "autograder.zip", "-o", out], out))
        tests = json.loads((out / "results.json").read_text())["tests"]
        own = [test for test in tests if "max_score" in test]  # one entry sums them up
        assert own and all(test["score"] == test["max_score"] for test in own), own
        total = [a + b for a, b in zip(total, took, strict=True)]
    return tuple(total)
