"""Seconds that grading on a cluster takes, measured here, and what follows for 10 000 submissions.

    python benchmarks/cluster.py [--lab lab01_quantization] [--submissions 20] [--markdown FILE]

One worker of a Dask LocalCluster grades the solved lab under so many names; then the results are
recorded in a new gradebook.  Grading shares itself out among workers, recording does not: the
larger of the two is what a class takes, after the time until the first result.
"""

import argparse
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from distributed import Client, LocalCluster

from autograder.grading.batch import grade_many
from autograder.grading.results import Result
from autograder.intake.discover import Submission, discover
from autograder.labs.manifest import LabSpec, load_lab
from autograder.labs.source import build_source
from autograder.nbgrader.recording import record
from autograder.nbgrader.release import generate

ROOT = Path(__file__).parents[1]
CLASS = 10_000
WORKERS = (16, 64, 256)
MEGABYTE = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lab", default="lab01_quantization")
    parser.add_argument("--submissions", type=int, default=20)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        course = Path(folder)
        shutil.copy(ROOT / "nbgrader_config.py", course)
        generate(ROOT, given.lab, course)
        lab = load_lab(given.lab, course)
        rows = hand_in(lab, build_source(ROOT, given.lab, course), course, given.submissions)
        first, each, memory, results = graded(lab, rows, course)
        recorded = seconds_of_recording(course, lab, rows, results)
    command = f"python benchmarks/cluster.py --lab {given.lab} --submissions {given.submissions}"
    text = told(command, first, each, memory, recorded)
    print(text)
    if given.markdown:
        given.markdown.write_text(text + "\n")


def hand_in(lab: LabSpec, solved: Path, course: Path, count: int) -> list[Submission]:
    target = course / "in" / "s0" / f"{lab.notebook}.ipynb"
    target.parent.mkdir(parents=True)
    shutil.copy(solved, target)
    [one] = discover(course / "in", lab)
    return [replace(one, student=f"s{number}") for number in range(count)]


def graded(lab: LabSpec, rows: list[Submission], folder: Path) -> tuple:
    """Seconds until the first result and for each further one, megabytes, the results."""
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    options |= {"local_directory": folder / "dask", "memory_limit": 0}
    started = time.perf_counter()
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        results, times, memory = [], [], 0
        for result in grade_many(lab, rows, executor=client.get_executor(pure=False)):
            assert result.score == lab.max_score, result
            results.append(result)
            times.append(time.perf_counter() - started)
            memory = max(memory, used_by(cluster.workers[0].process.process.pid))
    return times[0], (times[-1] - times[0]) / (len(times) - 1), memory / MEGABYTE, results


def used_by(root: int) -> int:
    """Bytes of a worker and all below it; pages that several share count once."""
    import psutil

    processes = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
    found = 0
    for process in processes:
        try:
            found += process.memory_full_info().pss
        except psutil.Error:
            continue
    return found


def seconds_of_recording(
    course: Path, lab: LabSpec, rows: list[Submission], results: list[Result]
) -> float:
    list(record(course, lab, rows[:1], results[:1]))  # makes the gradebook
    started = time.perf_counter()
    troubles = [row.trouble for row in record(course, lab, rows[1:], results[1:])]
    assert not any(troubles), troubles
    return (time.perf_counter() - started) / (len(rows) - 1)


def told(command: str, first: float, each: float, memory: float, recorded: float) -> str:
    lines = [
        f"Measured by `{command}`, one core for one worker: {first:.0f} s until the first result, "
        f"{each:.2f} s for each further submission, {memory:.0f} MB for a worker with its "
        f"sandboxes, {recorded:.2f} s to record a result.",
        "",
        f"| workers | grading {CLASS} submissions | recording them | the command takes |",
        "|---:|---:|---:|---:|",
    ]
    for workers in WORKERS:
        grading, recording = first + each * CLASS / workers, recorded * CLASS
        whole = max(grading, first + recording)
        cells = (f"{seconds / 60:.0f} min" for seconds in (grading, recording, whole))
        lines.append(f"| {workers} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
