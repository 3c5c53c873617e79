"""What it takes to grade a class: stock `nbgrader autograde` against `autograder grade`.

    python benchmarks/grading.py [--submissions 20] [--rounds 3] [--otter]
                                  [--json FILE] [--markdown FILE]

of lab 1; grading_by_lab.py makes a table of several labs.

All grade the same notebooks: the solved lab without its demo cells (model loading, plots), which
our grader never runs, so leaving them in would only slow the others down.  nbgrader and otter run
the visible tests in a kernel; ours runs the visible and the hidden ones, outside of a sandbox for
each submission, and in rows marked "visible" what the others run and no more.  Rounds alternate:
what comes first in one comes last in the next.  One process is compared with one, two with two (two
of nbgrader's at once, each with half of the class and a gradebook of its own).  Everybody has one
thread for each process, and a gradebook that was made beforehand.

CPU seconds are those of a control group around everything that was started, where one can be made;
otherwise of the processes that were waited for, without sandboxes.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import grading_otter
import grading_parts
import nbformat
from grading_commands import run

from autograder.labs.manifest import LabSpec, load_lab
from autograder.labs.source import build_source

ROOT = Path(__file__).parents[1]
LAB = "lab01_quantization"
CONFIG = "c = get_config()\nc.CourseDirectory.course_id = 'bench'\n"


# ---- the class ----------------------------------------------------------------------------------


class Bench(NamedTuple):
    """A folder with courses of one lab."""

    folder: Path
    lab: LabSpec

    @property
    def topic(self) -> str:
        return f"{self.lab.notebook}.ipynb"


def make_courses(bench: Bench, submissions: int) -> None:
    """folder/stock: a course of nbgrader's; folder/ours: one of ours; folder/class: the students.

    Both have a gradebook that knows the lab, and none of the students.
    """
    folder, name = bench.folder, bench.lab.name
    solved = build_source(ROOT, name)
    source = folder / "stock" / "source" / name
    shutil.copytree(solved.parent, source)
    notebook = nbformat.read(solved, as_version=4)
    notebook.cells = [c for c in notebook.cells if "demo" not in c.metadata.get("tags", [])]
    nbformat.write(notebook, source / bench.topic)
    (folder / "stock" / "nbgrader_config.py").write_text(CONFIG)
    generate = [sys.executable, "-m", "nbgrader", "generate_assignment", name, "--create"]
    run((generate, folder / "stock"))
    for number in range(submissions):
        shutil.copytree(source, folder / "class" / f"student{number:02d}" / name)
    (folder / "nobody").mkdir()
    (folder / "nobody" / "nobody.ipynb").write_text("no notebook")
    for course in ("ours", "visible"):
        for place in (Path("labs"), Path("autograder", "suites")):
            shutil.copytree(ROOT / place / name, folder / course / place / name)
        if course == "visible":
            hidden = folder / course / "autograder" / "suites" / name / "test_hidden.py"
            hidden.write_text(empty_tests(bench.lab))
        run((grade(bench, folder / "nobody", folder / course, 1), folder))


def empty_tests(lab: LabSpec) -> str:
    """A hidden suite that gives the points of the hidden tests for nothing."""
    tests = ["from efflib.lab import exercise"]
    for name in lab.exercises:
        points = sum(t.points for t in lab.tests if (t.kind, t.exercise) == ("hidden", name))
        declared = f"@exercise({name!r}, points={points}, invariant='-', cause='-')"
        tests.append(f"{declared}\ndef test_{name}(student, rng):\n    pass")
    return "\n\n".join(tests)


def grade(bench: Bench, handed_in: Path, course: Path, jobs: int) -> list:
    command = [sys.executable, "-m", "autograder.cli", "grade", bench.lab.name, handed_in]
    return [*command, "--course", course, "--jobs", jobs, "--json", course / "results.json"]


def students(folder: Path) -> list[Path]:
    return sorted((folder / "class").iterdir())


def stock(bench: Bench, jobs: int) -> tuple[float, float]:
    """nbgrader, so many at once."""
    (folder, lab), commands = bench, []
    for job in range(jobs):
        course = folder / "run" / f"stock{job}"
        shutil.copytree(folder / "stock", course)
        for student in students(folder)[job::jobs]:
            shutil.copytree(student, course / "submitted" / student.name)
        commands.append(([sys.executable, "-m", "nbgrader", "autograde", lab.name], course))
    took = run(*commands)
    pages = f"autograded/*/{lab.name}/*.ipynb"
    graded = [path for _, course in commands for path in course.glob(pages)]
    assert len(graded) == len(students(folder)), f"nbgrader graded {len(graded)}"
    return took


def ours(bench: Bench, jobs: int, name: str = "ours") -> tuple[float, float]:
    folder = bench.folder
    course = folder / "run" / name
    shutil.copytree(folder / name, course)
    took = run((grade(bench, folder / "class", course, jobs), folder))
    results = json.loads((course / "results.json").read_text())["results"]
    scores = {result["score"] == result["max_score"] for result in results}
    assert scores == {True} and len(results) == len(students(folder)), "not all points"
    return took


def otter(bench: Bench, jobs: int) -> tuple[float, float]:
    return grading_otter.grade(run, students, bench.topic, bench.folder, jobs)


# ---- rounds -------------------------------------------------------------------------------------


def rounds(bench: Bench, contestants: dict, number: int) -> dict[str, list[tuple[float, float]]]:
    """(wall, CPU) seconds by contestant, of each round. contestants: name -> (function, jobs)"""
    took = {name: [] for name in contestants}
    for one in range(number):
        for who in list(contestants)[:: -1 if one % 2 else 1]:
            function, jobs = contestants[who]
            took[who].append(function(bench, jobs))
            shutil.rmtree(bench.folder / "run")
            wall, cpu = took[who][-1]
            print(f"round {one + 1}  {who:15} {wall:7.1f} s  {cpu:7.1f} CPU s", flush=True)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--otter", action="store_true", help="compare with otter-grader 7, too")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--markdown", type=Path, help="write both tables to this file")
    options = parser.parse_args()
    contestants = {"nbgrader, 1": (stock, 1), "autograder, 1": (ours, 1)}
    contestants |= {"nbgrader, 2": (stock, 2), "autograder, 2": (ours, 2)}
    contestants |= {f"visible, {jobs}": (partial(ours, name="visible"), jobs) for jobs in (1, 2)}
    if options.otter:
        contestants["otter, 1"] = (otter, 1)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), load_lab(LAB, ROOT))
        make_courses(bench, options.submissions)
        if options.otter:
            grading_otter.make(bench.folder, LAB, run)
        took = rounds(bench, contestants, options.rounds)
    parts = grading_parts.measured(ROOT, LAB)
    text = summary(took, options.submissions, parts)
    print(f"\n{text}")
    if options.markdown:
        options.markdown.write_text(f"```text\n{text}\n```\n")
    if options.json:
        figures = {"submissions": options.submissions, "seconds": took, "parts": parts}
        options.json.write_text(json.dumps(figures, indent=1))


def summary(took: dict, submissions: int, parts: dict[str, float]) -> str:
    """Medians over the rounds, as two tables."""
    wall = {who: statistics.median(w for w, _ in rounds) for who, rounds in took.items()}
    cpu = {who: statistics.median(c for _, c in rounds) for who, rounds in took.items()}
    heads = ("per minute", "s each", "CPU s each", "to all", "to visible")
    lines = [f"{'processes':15}" + "".join(f"{head:>12}" for head in heads)]
    for who in took:
        jobs = who.rpartition(" ")[2]
        to = [wall[who] / wall[f"{ours}, {jobs}"] for ours in ("autograder", "visible")]
        row = (60 * submissions / wall[who], wall[who] / submissions, cpu[who] / submissions, *to)
        lines.append(f"{who:15}" + "".join(f"{value:12.2f}" for value in row))
    lines += [
        "",
        "to all, to visible: so many times as long as autograder takes with as many processes,",
        "for all tests and for those that the others run as well",
        "",
        "parts of one submission and of a batch, measured one by one, seconds:",
    ]
    lines += [f"    {what:60} {seconds:6.3f}" for what, seconds in parts.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
