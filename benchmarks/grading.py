"""What it takes to grade a class: stock `nbgrader autograde` against `autograder grade`.

    python benchmarks/grading.py [--submissions 20] [--rounds 3] [--otter]
                                  [--json FILE] [--markdown FILE]

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
import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grading_otter
import grading_parts
import nbformat

from autograder.labs.manifest import load_lab
from autograder.labs.source import build_source

ROOT = Path(__file__).parents[1]
LAB, TOPIC = "lab01_quantization", "quantization.ipynb"
CONFIG = "c = get_config()\nc.CourseDirectory.course_id = 'bench'\n"
PINNED = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
CPUACCT = Path("/sys/fs/cgroup/cpuacct")


# ---- running commands ---------------------------------------------------------------------------


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader runs alembic
    user = {"USER": os.environ.get("USER", "bench"), "PYTHONPATH": str(ROOT)}
    return os.environ | PINNED | user | {"PATH": path}


@contextlib.contextmanager
def cpu_group() -> Iterator[Path | None]:
    """A group that counts CPU time, also of processes that nobody waits for."""
    group = CPUACCT / f"benchmark-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    yield group
    with contextlib.suppress(OSError):
        group.rmdir()


def run(*commands: tuple[list, Path]) -> tuple[float, float]:
    """(wall, CPU) seconds of commands, each in a folder, all at once; they must succeed."""
    with cpu_group() as group, contextlib.ExitStack() as stack:
        enter = (lambda: (group / "cgroup.procs").write_text("0")) if group else None
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        running = []
        for arguments, folder in commands:
            log = stack.enter_context(tempfile.TemporaryFile("w+"))
            arguments = list(map(str, arguments))
            streams = {"stdout": log, "stderr": log, "preexec_fn": enter}
            process = subprocess.Popen(arguments, cwd=folder, env=environment(), **streams)
            running.append((process, arguments, log))
        for process, arguments, log in running:
            if process.wait():
                log.seek(0)
                raise SystemExit(f"{' '.join(arguments)} failed:\n{log.read()}")
        wall = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return wall, int((group / "cpuacct.usage").read_text()) / 1e9 if group else cpu


# ---- the class ----------------------------------------------------------------------------------


def make_courses(folder: Path, submissions: int) -> None:
    """folder/stock: a course of nbgrader's; folder/ours: one of ours; folder/class: the students.

    Both have a gradebook that knows the lab, and none of the students.
    """
    solved = build_source(ROOT, LAB)
    source = folder / "stock" / "source" / LAB
    shutil.copytree(solved.parent, source)
    notebook = nbformat.read(solved, as_version=4)
    notebook.cells = [c for c in notebook.cells if "demo" not in c.metadata.get("tags", [])]
    nbformat.write(notebook, source / TOPIC)
    (folder / "stock" / "nbgrader_config.py").write_text(CONFIG)
    generate = [sys.executable, "-m", "nbgrader", "generate_assignment", LAB, "--create"]
    run((generate, folder / "stock"))
    for number in range(submissions):
        shutil.copytree(source, folder / "class" / f"student{number:02d}" / LAB)
    (folder / "nobody").mkdir()
    (folder / "nobody" / "nobody.ipynb").write_text("no notebook")
    for name in ("ours", "visible"):
        for place in (Path("labs"), Path("autograder", "suites")):
            shutil.copytree(ROOT / place / LAB, folder / name / place / LAB)
        if name == "visible":
            hidden = folder / name / "autograder" / "suites" / LAB / "test_hidden.py"
            hidden.write_text(empty_tests())
        run((grade(folder / "nobody", folder / name, 1), folder))


def empty_tests() -> str:
    """A hidden suite that gives the points of the hidden tests for nothing."""
    lab, tests = load_lab(LAB, ROOT), ["from efflib.lab import exercise"]
    for name in lab.exercises:
        points = sum(t.points for t in lab.tests if (t.kind, t.exercise) == ("hidden", name))
        declared = f"@exercise({name!r}, points={points}, invariant='-', cause='-')"
        tests.append(f"{declared}\ndef test_{name}(student, rng):\n    pass")
    return "\n\n".join(tests)


def grade(handed_in: Path, course: Path, jobs: int) -> list:
    command = [sys.executable, "-m", "autograder.cli", "grade", LAB, handed_in]
    return [*command, "--course", course, "--jobs", jobs, "--json", course / "results.json"]


def students(folder: Path) -> list[Path]:
    return sorted((folder / "class").iterdir())


def stock(folder: Path, jobs: int) -> tuple[float, float]:
    """nbgrader, so many at once."""
    commands = []
    for job in range(jobs):
        course = folder / "run" / f"stock{job}"
        shutil.copytree(folder / "stock", course)
        for student in students(folder)[job::jobs]:
            shutil.copytree(student, course / "submitted" / student.name)
        commands.append(([sys.executable, "-m", "nbgrader", "autograde", LAB], course))
    took = run(*commands)
    graded = [path for _, course in commands for path in course.glob(f"autograded/*/{LAB}/*.ipynb")]
    assert len(graded) == len(students(folder)), f"nbgrader graded {len(graded)}"
    return took


def ours(folder: Path, jobs: int, name: str = "ours") -> tuple[float, float]:
    course = folder / "run" / name
    shutil.copytree(folder / name, course)
    took = run((grade(folder / "class", course, jobs), folder))
    results = json.loads((course / "results.json").read_text())["results"]
    scores = {result["score"] == result["max_score"] for result in results}
    assert scores == {True} and len(results) == len(students(folder)), "not all points"
    return took


# ---- rounds -------------------------------------------------------------------------------------


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
        contestants["otter, 1"] = (partial(grading_otter.grade, run, students, TOPIC), 1)
    took = {name: [] for name in contestants}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_courses(folder, options.submissions)
        if options.otter:
            grading_otter.make(folder, LAB, run)
        for number in range(options.rounds):
            order = list(contestants)[:: -1 if number % 2 else 1]
            for who in order:
                function, jobs = contestants[who]
                took[who].append(function(folder, jobs))
                shutil.rmtree(folder / "run")
                wall, cpu = took[who][-1]
                print(f"round {number + 1}  {who:15} {wall:7.1f} s  {cpu:7.1f} CPU s", flush=True)
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
