"""The parts of grading, measured one by one on a solved notebook: where the time goes."""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TIMES = 7


def seconds(work: Callable[[], object], times: int = TIMES) -> float:
    """The median."""
    took = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        took.append(time.perf_counter() - started)
    return statistics.median(took)


def importing(module: str) -> float:
    command = [sys.executable, "-c", f"import autograder, {module}"]
    return seconds(lambda: subprocess.run(command, check=True), 3)


def measured(root: Path, name: str) -> dict[str, float]:
    """{what: seconds}, in the order in which it happens."""
    parts = {
        "once: the coordinator's own imports": importing("autograder.commands.grade"),
        "once, beside the next: nbgrader imported": importing("autograder.nbgrader.recording"),
        "once, beside the next: torch imported, by the server": importing("torch"),
    }
    import torch

    from autograder.grading.rebuild import rebuild
    from autograder.intake.notebook import parse_notebook
    from autograder.labs.manifest import load_lab
    from autograder.labs.source import build_source
    from efflib.lab.runner import collect

    torch.set_num_threads(1)
    lab = load_lab(name, root)
    cells = parse_notebook(build_source(root, name).read_bytes())
    release = parse_notebook(lab.release_notebook.read_bytes())
    files = list(lab.test_files.values())
    parts["once, beside the next: tests collected"] = seconds(lambda: collect(files), 3)
    parts |= of_a_sandbox(lab)
    parts["each: notebook rebuilt"] = seconds(lambda: rebuild(cells, release))
    return parts | of_a_submission(lab, rebuild(cells, release).cells) | of_a_row(root, name, cells)


def of_a_sandbox(lab) -> dict[str, float]:
    """The first one waits for its zygote."""
    from autograder.grading.verdict import sandbox_spec
    from autograder.sandbox import warm
    from autograder.sandbox.session import Session

    def one() -> None:
        with Session(sandbox_spec(lab, unsafe=False)) as session:
            session.meter()

    first = seconds(one, 1)
    assert not warm.reason, f"no warm sandboxes here: {warm.reason}"
    return {
        "once: a zygote, until it has torch and made a sandbox": first,
        "each: a sandbox, its start and its end": seconds(one, 20),
    }


def of_a_submission(lab, cells) -> dict[str, float]:
    """Cells and tests, and the CPU time of the latter on both sides."""
    from autograder.grading.verdict import run_timed, sandbox_spec
    from autograder.sandbox.remote import RemoteStudent
    from autograder.sandbox.session import Session

    spec, took = sandbox_spec(lab, unsafe=False), []
    for _ in range(TIMES):
        session = Session(spec)
        session.meter()
        clocks = [time.perf_counter()]
        remote = RemoteStudent(spec, cells, lab.budget, session)
        clocks.append(time.perf_counter())
        inside, outside = session._process.cpu_seconds(), time.process_time()
        run_timed(list(lab.test_files.values()), remote, 0)
        clocks.append(time.perf_counter())
        inside, outside = session._process.cpu_seconds() - inside, time.process_time() - outside
        remote.close()
        took.append((clocks[1] - clocks[0], clocks[2] - clocks[1], outside, inside))
    names = ["each: cells", "each: tests, public and hidden, with their collecting"]
    names += ["    of that CPU time of the tests", "    of that CPU time in the sandbox"]
    return dict(zip(names, map(statistics.median, zip(*took, strict=True)), strict=True))


def of_a_row(root: Path, name: str, cells) -> dict[str, float]:
    """The gradebook's rows, executed notebook and page of one submission, in a class of some."""
    from msgspec.structs import replace

    from autograder.grading.verdict import grade_one
    from autograder.intake.discover import Submission
    from autograder.intake.notebook import notebook_digest
    from autograder.labs.manifest import load_lab
    from autograder.nbgrader.recording import record

    with tempfile.TemporaryDirectory() as folder:
        course = Path(folder)
        for place in ("labs", "autograder/suites"):
            shutil.copytree(root / place / name, course / place / name)
        lab = load_lab(name, course)
        rows = [
            Submission(f"s{n}", name, "", cells, notebook_digest(cells)) for n in range(TIMES + 1)
        ]
        graded = grade_one(lab, rows[0])
        results = [replace(graded, student=row.student) for row in rows]
        list(record(course, lab, rows[:1], results[:1]))  # which makes the gradebook
        took = seconds(lambda: list(record(course, lab, rows[1:], results[1:])), 1)
    return {"each: gradebook, executed notebook, feedback page": took / TIMES}
