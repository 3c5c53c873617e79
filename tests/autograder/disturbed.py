"""Grades a toy class with `autograder grade` and kills parts of it; says what is left behind.

Everything is found by its process id below the command that was started here, never by name alone.
"""

import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

from sqlalchemy import create_engine, text
from toylab import NAME, RIGHT1, STUB2, WRONG1, answered, make_course, write

from autograder.grading.results import Result, read_report
from autograder.sandbox import limits

HERE = Path(__file__).parent
COLD_GRADE = HERE / "cold_grade.py"
PYTHONPATH = os.pathsep.join([str(HERE.parents[1]), *os.environ.get("PYTHONPATH", "").split(":")])
KINDS = ("coordinator", "server", "worker", "zygote", "sandbox")
SERVER = "autograder.grading.server"  # in the command line of a server and of its forked children
KILLS_ITSELF = "def scale(*_):\n    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)"
SET_CHILD_SUBREAPER = 36
STEP_SECONDS = 0.03
END_SECONDS = 60.0  # for the end of killed processes, however slow the machine is
ANSWERS = [
    {},
    {"ex1": WRONG1},
    {"ex2": STUB2},
    {"ex1": RIGHT1 + "\nhelper = [n for n in range(1000)]"},
    {"ex1": KILLS_ITSELF},
    {"ex2": "def clip(numbers, lo, hi):\n    return numbers"},
]


# ---- a class ------------------------------------------------------------------------------------


def hand_in(folder: Path, students: int) -> Path:
    """Notebooks of a class; one is no notebook, and one in twelve kills its process."""
    for number in range(students):
        own = {} if number % 12 > 5 else ANSWERS[number % 12]
        nb = b"<html>" if number == 7 else answered(**own, w1=f"Because of {number}.")
        write(folder / f"s{number:03d}.ipynb", nb)
    return folder


def new_course(folder: Path) -> Path:
    (folder / "tmp").mkdir(parents=True)
    return make_course(folder)


def grading(course: Path, handed_in: Path, *options: str, warm: bool = True) -> subprocess.Popen:
    """`autograder grade`, with two workers, whose folder for temporary files is course/tmp."""
    program = ["-m", "autograder.cli"] if warm else [str(COLD_GRADE)]
    where = () if "--scheduler" in options else ("--jobs", "2")
    command = [sys.executable, *program, "grade", NAME, str(handed_in), *where, *options]
    command += ["--course", str(course), "--json", str(course / "results.json")]
    with (course / "log.txt").open("ab") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            cwd=HERE.parents[1],
            env=os.environ | {"TMPDIR": str(course / "tmp"), "PYTHONPATH": PYTHONPATH},
            start_new_session=True,
        )


def results(course: Path) -> dict[str, Result]:
    return {r.student: r for r in read_report(course / "results.json").results}


def points(result: Result) -> tuple:
    tests = [(t.test, t.outcome) for part in result.exercises for t in part.tests]
    return result.status, result.score, result.reason, tests


def grades(url: str) -> list[tuple]:
    """Every grade and comment, without ids that hang on the order of writing."""
    query = """
        select student.id, base_cell.name, {columns}
        from {table} join submitted_notebook on submitted_notebook.id = {table}.notebook_id
        join submitted_assignment on submitted_assignment.id = submitted_notebook.assignment_id
        join student on student.id = submitted_assignment.student_id
        join base_cell on base_cell.id = {table}.cell_id"""
    tables = {
        "grade": "auto_score, manual_score, extra_credit, needs_manual_grade",
        "comment": "auto_comment, manual_comment",
    }
    engine = create_engine(url)
    with engine.connect() as connection:
        queries = [query.format(table=table, columns=columns) for table, columns in tables.items()]
        rows = [tuple(row) for each in queries for row in connection.execute(text(each))]
    engine.dispose()
    return sorted(rows, key=repr)


def in_file(course: Path) -> list[tuple]:
    return grades(f"sqlite:///{course}/gradebook.db")


def files(course: Path) -> set[str]:
    return {str(path.relative_to(course)) for path in course.rglob("*")}


# ---- processes ----------------------------------------------------------------------------------


def table() -> dict[int, tuple[int, str]]:
    """{pid: (parent, command line)} of all processes that have not ended."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                line = stat.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(stat.parent.name)] = int(parent), line
    return found


def below(root: int, processes: dict[int, tuple[int, str]]) -> dict[int, list[int]]:
    """{pid: the processes between root and it, itself last} of everything below root."""
    paths, todo = {}, [(root, [])]
    while todo:
        parent, path = todo.pop()
        for pid, (above, _) in processes.items():
            if above == parent:
                paths[pid] = [*path, pid]
                todo.append((pid, paths[pid]))
    return paths


def targets(coordinator: int) -> dict[str, list[int]]:
    """Which processes of a run are of which kind.

    coordinator; its server; below that the workers, which it forks for one submission each, and
    where sandboxes are warm: keeper, bubblewrap twice, zygote; below it three for each sandbox.  A
    cold sandbox is all that is below a worker.
    """
    processes = table()
    found = {kind: [] for kind in KINDS} | {"coordinator": [coordinator]}
    for pid, path in below(coordinator, processes).items():
        if SERVER not in processes[path[0]][1]:
            continue
        forked = len(path) > 1 and SERVER in processes[path[1]][1]
        if len(path) == 1:
            kind = "server"
        elif forked:
            kind = "worker" if len(path) == 2 else "sandbox"
        else:
            kind = "zygote" if len(path) < 6 else "sandbox"
        found[kind].append(pid)
    return found


@contextlib.contextmanager
def orphans() -> Iterator:
    """Orphans among our descendants become our children; yields a function that lists them."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    resource_tracker.ensure_running()  # multiprocessing's, which stays as long as we do
    before = {pid for pid, (parent, _) in table().items() if parent == os.getpid()}

    def left() -> dict[int, str]:
        own = {p: line for p, (parent, line) in table().items() if parent == os.getpid()}
        return {pid: line for pid, line in own.items() if pid not in before}

    assert prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield left
    finally:
        for pid in left():
            os.kill(pid, signal.SIGKILL)
        bury(before)
        prctl(SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def bury(known: set[int]) -> None:
    """Waits for children that we have inherited."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent, pid = int(stat.read_text().rpartition(")")[2].split()[1]), stat.parent.name
            if parent == os.getpid() and int(pid) not in known:
                os.waitpid(int(pid), os.WNOHANG)


def groups(pids: set[int]) -> list[Path]:
    """Control groups of sandboxes that these processes made."""
    _, parents = limits.usable_parents() or (0, ())
    made = [group for parent in parents for group in parent.glob(f"{limits.PREFIX}-*-*")]
    return [group for group in made if int(group.name.split("-")[2]) in pids]


def eventually(condition) -> bool:
    end = time.monotonic() + END_SECONDS
    while not condition() and time.monotonic() < end:
        time.sleep(STEP_SECONDS)
    return condition()


# ---- the run ------------------------------------------------------------------------------------


class Disturbed:
    """A course that is graded while parts of the grader are killed."""

    def __init__(self, course: Path, handed_in: Path, warm: bool) -> None:
        self.course, self.handed_in, self.warm = course, handed_in, warm
        self.run: subprocess.Popen | None = None
        self.servers: set[int] = set()  # every one that was seen
        self.groups: set[Path] = set()  # and every control group of theirs

    def start(self, *options: str) -> None:
        self.run = grading(self.course, self.handed_in, *options, warm=self.warm)

    def look(self) -> dict[str, list[int]]:
        """The processes of the run as they are now, by kind."""
        found = targets(self.run.pid)
        self.servers |= set(found["server"])
        self.groups |= set(groups(self.servers))
        return found

    def kill(self, kind: str, rng: random.Random, within: float) -> None:
        """Kills a process of that kind, at a random moment after the first of them was seen.

        A run that is over before is started again, and then grades everything again.
        """
        moment = None
        while True:
            if self.run is None or self.run.poll() is not None:
                over = self.run is not None and self.run.returncode >= 0
                self.start(*(["--regrade"] if over else []))
            found = self.look()[kind]
            if found and moment is None:
                moment = time.monotonic() + rng.uniform(0, within)
            if found and time.monotonic() >= moment:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(sorted(found)), signal.SIGKILL)
                    break
            time.sleep(STEP_SECONDS)
        if kind == "coordinator":
            self.run.wait()

    def finish(self) -> int:
        """The exit code of the run that goes on, or of a new one."""
        if self.run is None or self.run.returncode is not None:
            self.start()
        while self.run.poll() is None:
            self.look()
            time.sleep(STEP_SECONDS)
        return self.run.returncode
