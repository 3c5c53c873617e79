"""Time to grade ten submissions of lab01: stock `nbgrader autograde` against `autograder grade`.

    python benchmarks/grading.py [--submissions 10]

Both grade the same notebooks in one run on one machine: the solved lab without its demo cells
(model loading, plots), which our grader never runs, so leaving them in would only slow nbgrader
down. nbgrader runs the visible checks in the student's kernel; ours runs the visible and the
hidden tests outside a fresh sandbox per submission. Prints seconds per submission and the ratio.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat

from autograder.labs.source import build_source

ROOT = Path(__file__).parents[1]
LAB = "lab01_quantization"
TOPIC = "quantization.ipynb"
CONFIG = "c = get_config()\nc.CourseDirectory.course_id = 'bench'\n"


def run(arguments: list[str], folder: Path) -> float:
    """Wall seconds of a command, which must succeed."""
    started = time.perf_counter()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader runs alembic
    env = {**os.environ, "USER": os.environ.get("USER", "bench"), "PATH": path}
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}")
    return time.perf_counter() - started


def without_demos(notebook):
    notebook.cells = [c for c in notebook.cells if "demo" not in c.metadata.get("tags", [])]
    return notebook


def make_course(folder: Path, submissions: int) -> None:
    """A stock nbgrader course whose students all handed in the solved lab."""
    solved = build_source(ROOT, LAB)
    source = folder / "source" / LAB
    shutil.copytree(solved.parent, source)
    nbformat.write(without_demos(nbformat.read(solved, as_version=4)), source / TOPIC)
    (folder / "nbgrader_config.py").write_text(CONFIG)
    run([sys.executable, "-m", "nbgrader", "generate_assignment", LAB, "--create"], folder)
    for i in range(submissions):
        shutil.copytree(source, folder / "submitted" / f"student{i:02d}" / LAB)


def scores_of_stock(folder: Path) -> list[float]:
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{folder}/gradebook.db", "bench") as gradebook:
        return [s.code_score for s in gradebook.assignment_submissions(LAB)]


def scores_of_ours(file: Path) -> list[float]:
    return [result["score"] for result in json.loads(file.read_text())["results"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=10)
    n = parser.parse_args().submissions
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_course(folder, n)
        stock = run([sys.executable, "-m", "nbgrader", "autograde", LAB], folder) / n
        print(f"nbgrader autograde, 1 process      {stock:6.2f} s per submission")
        print(f"    scores {sorted(set(scores_of_stock(folder)))}")
        for jobs in sorted({1, os.cpu_count() or 1}):
            out = folder / f"results{jobs}.json"
            options = ["--jobs", str(jobs), "--json", str(out), "--regrade"]
            command = [sys.executable, "-m", "autograder.cli", "grade", LAB]
            command += [str(folder / "submitted"), "--course", str(folder / "ours"), *options]
            (folder / "ours").mkdir(exist_ok=True)
            for part in ("labs", "autograder"):
                if not (folder / "ours" / part).exists():
                    (folder / "ours" / part).symlink_to(ROOT / part)
            ours = run(command, ROOT) / n
            print(f"autograder grade, {jobs} process(es)   {ours:6.2f} s per submission")
            print(f"    scores {sorted(set(scores_of_ours(out)))}")
            print(f"    ratio nbgrader / autograder  {stock / ours:.2f}")


if __name__ == "__main__":
    main()
