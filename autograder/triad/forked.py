"""Runs tests on a lab's own variants, many and quickly: in forked children, without a sandbox.

For the course's own files only.  A worker process imports torch, runs the cells of the solved
notebook and collects a test file once; each run is then a child that starts from there, runs the
cells of its variant and its tests, and ends.  So a run costs some 30 ms and the time of its tests,
leaves nothing behind, and may loop, eat memory or crash.
"""

import contextlib
import functools
import io
import linecache
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from autograder.grading.pool import cores, run_jobs
from autograder.grading.server import die_with
from autograder.labs.manifest import Budget, LabSpec
from efflib.lab.plugin import ExercisePlugin, declared, name_of
from efflib.lab.runner import run_session
from efflib.lab.student import LocalStudent

CHILD_SECONDS = 600.0  # a child that sleeps is killed then
CHILD_CPU_SECONDS = 300
REPEAT_SECONDS = 0.5  # for code that catches the time limit's exception and goes on
BATCH_SECONDS = 3600.0
TOUCHED = "__touched__"  # variables of the namespace by which a variant's cells tell something:
RECORDED = "__recorded__"  # how often they acted, and what they saw


class Run(msgspec.Struct, frozen=True):
    """Cells that run behind the canonical ones, and the tests to run on them.

    exercise: "" for all; tests: names, () for all of the exercise; first: stop at the first failure
    """

    cells: tuple[str, ...]
    exercise: str
    seed: int = 0
    tests: tuple[str, ...] = ()
    first: bool = False


class Saw(msgspec.Struct, frozen=True):
    """What one test of a run said. touched: the variant's cells acted during it (see TOUCHED)."""

    test: str
    passed: bool
    observed: str = ""
    touched: bool = False


class Outcome(msgspec.Struct, frozen=True):
    saw: tuple[Saw, ...] = ()
    recorded: tuple = ()

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(saw.test for saw in self.saw if not saw.passed)


class Timeout(BaseException):
    """The time limit of a call; `except Exception` does not catch it."""


# ---- in the coordinator -------------------------------------------------------------------------


def in_workers(job: Callable[[tuple], bytes], items: Sequence, jobs: int | None, size: int):
    """Yields (batch, answer) for batches of items. Raises what a worker raised."""
    batches = [tuple(items[i : i + size]) for i in range(0, len(items), size)]
    workers = max(1, min(jobs or cores(), len(batches)))
    for batch, answer in run_jobs(job, batches, workers, BATCH_SECONDS):
        if isinstance(answer, Exception):
            raise answer
        yield batch, answer


# ---- in a worker --------------------------------------------------------------------------------


def run_on_file(lab: LabSpec, cells: tuple[str, ...], kind: str, runs: Sequence[Run]):
    """An Outcome for each run, of the public or the hidden tests. cells: of the solved notebook."""
    plugin = Forking(solved_namespace(cells), runs, lab.budget)
    run_session([Path(lab.test_files[kind])], plugin)
    return plugin.outcomes


@functools.lru_cache(maxsize=1)
def solved_namespace(cells: tuple[str, ...]) -> dict:
    namespace = {"__name__": "__main__", "display": lambda *_, **__: None}
    for cell in cells:
        run_cell(cell, namespace, Budget().notebook_seconds)
    return namespace


def run_cell(source: str, namespace: dict, seconds: float) -> None:
    """Runs a cell; what it raises stays here, as in grading: the tests will see what is missing."""
    name = f"<cell {len(linecache.cache)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            limited(seconds, lambda: exec(compile(source, name, "exec"), namespace))
        except KeyboardInterrupt:
            raise
        except BaseException:
            pass


def limited(seconds: float, work: Callable):
    """work(), which is stopped after that many seconds of CPU time, however busy the machine is."""

    def stop(*_):
        raise Timeout(f"stopped after {seconds:g} s")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, REPEAT_SECONDS)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


class TimedStudent(LocalStudent):
    """The functions of a namespace, each call within a time limit."""

    def __init__(self, namespace: dict, seconds: float) -> None:
        super().__init__(namespace)
        self._seconds = seconds

    def limited_to(self, seconds: float) -> "TimedStudent":
        return TimedStudent(self._namespace, seconds)

    def _call(self, name: str, args: tuple, kwargs: dict):
        call = super()._call
        return limited(self._seconds, lambda: call(name, args, kwargs))

    def _drive(self, source: str, name: str, args: tuple, kwargs: dict):
        drive = super()._drive
        return limited(self._seconds, lambda: drive(source, name, args, kwargs))


class Forking(ExercisePlugin):
    """A pytest session in which each run is a child that runs some of the collected tests."""

    def __init__(self, namespace: dict, runs: Sequence[Run], budget: Budget) -> None:
        super().__init__(None, 0, None, None)
        self.namespace, self.runs, self.budget = namespace, runs, budget
        self.outcomes: list[Outcome] = []

    def pytest_runtestloop(self) -> bool:
        if not self.faults:
            self.outcomes = [self.outcome(run) for run in self.runs]
        return True

    def outcome(self, run: Run) -> Outcome:
        items = [item for item in self._items if wanted(item, run)]
        if not items:
            return Outcome()
        data, ended = in_child(lambda: self.run_items(items, run))
        if data:
            return msgspec.json.decode(data, type=Outcome)
        names = dict.fromkeys(map(name_of, items))
        return Outcome(tuple(Saw(name, False, f"the process ended ({ended})") for name in names))

    def run_items(self, items: list, run: Run) -> bytes:
        """What happens in the child."""
        set_limits(self.budget.memory_mb)
        for cell in run.cells:
            run_cell(cell, self.namespace, self.budget.cell_seconds)
        self._student = TimedStudent(self.namespace, self.budget.call_seconds)
        self._seed, self._items, touched = run.seed, [], set()
        for item, following in zip(items, [*items[1:], None], strict=True):
            before = self.namespace.get(TOUCHED)
            self._items.append(item)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.namespace.get(TOUCHED) != before:
                touched.add(name_of(item))
            if run.first and any(report.outcome != "passed" for report in self.reports()):
                break
        saw = tuple(
            Saw(report.test, report.outcome == "passed", report.observed, report.test in touched)
            for report in self.reports()
        )
        return msgspec.json.encode(Outcome(saw, tuple(self.namespace.get(RECORDED, ()))))


def wanted(item, run: Run) -> bool:
    if run.tests:
        return name_of(item) in run.tests
    return run.exercise in ("", declared(item).exercise)


def set_limits(memory_mb: int) -> None:
    """CPU time of this process, and memory on top of what is mapped already."""
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + memory_mb * 2**20,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (CHILD_CPU_SECONDS,) * 2)


def in_child(work: Callable[[], bytes]) -> tuple[bytes, str]:
    """(the bytes that work() gave in a forked child, how the child ended); b"" if it gave none."""
    read, write = os.pipe()
    worker = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with(worker)
            os.close(read)
            with os.fdopen(write, "wb") as pipe:
                pipe.write(work())
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    try:
        data = b"".join(chunks(read, time.monotonic() + CHILD_SECONDS))
    except BaseException as fault:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if isinstance(fault, TimeoutError):
            return b"", f"killed after {CHILD_SECONDS:g} s"
        raise
    finally:
        os.close(read)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return data if code == 0 else b"", f"exit code {code}" if code >= 0 else f"signal {-code}"


def chunks(fd: int, end: float) -> Iterator[bytes]:
    """What can be read from a pipe until it is closed. Raises TimeoutError."""
    while select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
        data = os.read(fd, 2**16)
        if not data:
            return
        yield data
    raise TimeoutError
