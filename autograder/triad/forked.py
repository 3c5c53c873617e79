"""Runs tests on a lab's own variants, many and quickly: in forked children, without a sandbox.

For the course's own files only.  A server imports torch, runs the cells of the solved notebook and
collects the tests once, and forks a worker for each batch; each run is then a child of a worker,
which runs the cells of its variant and its tests, and ends.  So a run costs some 30 ms and the time
of its tests, leaves nothing behind, and may loop, eat memory or crash.

`at_hand` does without a server: whoever has imported torch already forks the children himself.
"""

import functools
import gc
import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from autograder.grading.pool import cores, run_jobs
from autograder.labs.manifest import Budget, LabSpec
from autograder.triad.child import in_child, set_limits
from autograder.triad.timed import TimedStudent, run_cell
from efflib.lab.plugin import ExercisePlugin, declared, name_of
from efflib.lab.runner import TestFileError, run_session

BATCH_SECONDS = 3600.0
TOUCHED = "__touched__"  # variables of the namespace by which a variant's cells tell something:
RECORDED = "__recorded__"  # how often they acted, and what they saw
# What torch imports when it is first needed: by backward(g), an optimizer or a dispatch mode.  Half
# a second to two: what one child needed is there before the next one is forked.
LATE = ("torch.fx.experimental.symbolic_shapes", "torch._dynamo", "torch.utils.flop_counter")


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
    late: tuple[str, ...] = ()  # of LATE, what was imported

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(saw.test for saw in self.saw if not saw.passed)


# ---- in the coordinator -------------------------------------------------------------------------


def in_workers(
    job: Callable[..., bytes],
    lab: LabSpec,
    cells: tuple[str, ...],
    items: Sequence,
    jobs: int | None,
    size: int,
):
    """Yields (batch, job(lab, cells, batch)) for batches of items. Raises what a worker raised."""
    batches = [tuple(items[i : i + size]) for i in range(0, len(items), size)]
    if (lab.name, cells) in _waiting:
        yield from ((batch, job(lab, cells, batch)) for batch in batches)
        return
    workers = max(1, min(jobs or cores(), len(batches)))
    ready = partial(ready_to_run, lab, cells)
    for batch, answer in run_jobs(partial(job, lab, cells), batches, workers, BATCH_SECONDS, ready):
        if isinstance(answer, Exception):
            raise answer
        yield batch, answer


# ---- in a server, and in its workers ------------------------------------------------------------


_waiting: dict[tuple, "Forking"] = {}  # what the server of this worker has collected


def ready_to_run(lab: LabSpec, cells: tuple[str, ...], serve: Callable[[], None]) -> None:
    """In a server: what its workers need is imported, run and collected before they fork."""

    def wait(plugin: "Forking") -> None:
        _waiting[lab.name, cells] = plugin
        serve()

    try:
        collected(lab, cells, wait)
    except TestFileError:  # the first batch will say so
        serve()


def at_hand(lab: LabSpec, cells: tuple[str, ...], work: Callable[[], Any]) -> Any:
    """work(), during which all runs on these cells are children of this process.

    Raises what work raises, and TestFileError.
    """
    done, faults = [], []

    def wait(plugin: "Forking") -> None:
        _waiting[lab.name, cells] = plugin
        gc.collect()
        gc.freeze()  # counting references would copy the memory that children share
        try:
            done.append(work())
        except Exception as fault:  # pytest, which runs around this, would keep it to itself
            faults.append(fault)
        finally:
            gc.unfreeze()
            del _waiting[lab.name, cells]

    collected(lab, cells, wait)
    if faults:
        raise faults[0]
    return done[0]


def collected(lab: LabSpec, cells: tuple[str, ...], work: Callable[["Forking"], None]) -> None:
    """work() with the tests of a lab. cells: of the solved notebook."""
    plugin = Forking(solved_namespace(cells), lab, work)
    run_session([Path(file) for file in lab.test_files.values()], plugin)


def run_all(
    lab: LabSpec, cells: tuple[str, ...], runs: Sequence[Run], kind: str = ""
) -> list[Outcome]:
    """An Outcome for each run. kind: of the tests, "" for public ones and then hidden ones."""
    outcomes: list[Outcome] = []

    def work(plugin: "Forking") -> None:
        outcomes.extend(plugin.outcome(run, kind) for run in runs)

    if (lab.name, cells) in _waiting:
        work(_waiting[lab.name, cells])
    else:
        collected(lab, cells, work)
    return outcomes


@functools.lru_cache(maxsize=1)
def solved_namespace(cells: tuple[str, ...]) -> dict:
    namespace = {"__name__": "__main__", "display": lambda *_, **__: None}
    for cell in cells:
        run_cell(cell, namespace, Budget().notebook_seconds)
    return namespace


class Forking(ExercisePlugin):
    """Collects tests and does some work, in which each run is a child that runs some of them."""

    def __init__(self, namespace: dict, lab: LabSpec, work: Callable[["Forking"], None]) -> None:
        super().__init__(None, 0, None, None)
        self.namespace, self.budget, self._work = namespace, lab.budget, work
        self._files = {kind: Path(file).name for kind, file in lab.test_files.items()}

    def pytest_runtestloop(self) -> bool:
        if not self.faults:
            self._work(self)
        return True

    def outcome(self, run: Run, kind: str = "") -> Outcome:
        """kind: of the tests, "" for both."""
        files = [self._files[kind]] if kind else self._files.values()
        items = [item for item in self._items if item.path.name in files and wanted(item, run)]
        if not items:
            return Outcome()
        data, ended = in_child(lambda: self.run_items(items, run))
        if data:
            outcome = msgspec.json.decode(data, type=Outcome)
            import_late(outcome.late)
            return outcome
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
        recorded = tuple(self.namespace.get(RECORDED, ()))
        late = tuple(name for name in LATE if name in sys.modules)
        return msgspec.json.encode(Outcome(saw, recorded, late))


def import_late(names: Sequence[str]) -> None:
    new = [name for name in names if name in LATE and name not in sys.modules]
    for name in new:
        importlib.import_module(name)
    if new and gc.get_freeze_count():
        gc.collect()
        gc.freeze()  # as at_hand did


def wanted(item, run: Run) -> bool:
    if run.tests:
        return name_of(item) in run.tests
    return run.exercise in ("", declared(item).exercise)
