"""The pytest plugin that runs tests declared with `@exercise` and reports what each observed."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from efflib.lab.codec import REFUSED
from efflib.lab.exercise import MARK
from efflib.lab.report import TestReport
from efflib.lab.runner import After
from efflib.lab.seeds import derived_seed, seed_all
from efflib.lab.student import StudentError, source_of

OBSERVED_LENGTH = 400
DID_NOT_RAISE = "DID NOT RAISE "
ORDER = ("passed", "not verified", "failed")


def title_of(test: str) -> str:
    """'zero is exact' of 'test_zero_is_exact'."""
    return test.removeprefix("test_").replace("_", " ")


class ExercisePlugin:
    """Provides the fixtures `student` and `rng`, and gathers what every test reported."""

    def __init__(self, student, seed: int, only: str | None, names: frozenset | None) -> None:
        self._student, self._seed, self._only, self._names = student, seed, only, names
        self._items: list[pytest.Function] = []
        self._results: dict[str, TestReport] = {}  # by node id: a test may have several cases
        self.faults: list[str] = []  # of the test file
        self.interrupted = False

    @pytest.fixture
    def student(self, request):
        seconds = declared(request.node).seconds
        limited_to = getattr(type(self._student), "limited_to", None)  # a notebook has no limits
        self._student._begin(derived_seed(self._seed, name_of(request.node)))
        return limited_to(self._student, seconds) if seconds and limited_to else self._student

    @pytest.fixture
    def rng(self, request) -> torch.Generator:
        return torch.Generator().manual_seed(derived_seed(self._seed, name_of(request.node)))

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.faults.append(str(report.longrepr)[-500:])

    def pytest_collection_modifyitems(self, config, items) -> None:
        config.option.tbstyle = "value"  # nobody reads pytest's tracebacks: 50 ms each
        self.faults += [f"{i.name} has no @exercise" for i in items if declared(i) is None]
        if self._only is not None:
            items[:] = [i for i in items if declared(i) and declared(i).exercise == self._only]
        if self._names is not None:
            items[:] = [i for i in items if name_of(i) in self._names]
        self._items = list(items)

    def pytest_runtest_setup(self, item) -> None:
        seed_all(derived_seed(self._seed, name_of(item)))  # for tests that use the global ones

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if report.when == "call" or not report.passed:
            result = result_of(item, report, call)
            self._results[item.nodeid] = worst([self._results.get(item.nodeid, result), result])
        return report

    def pytest_keyboard_interrupt(self, excinfo) -> None:
        self.interrupted = True
        said = "it was running when the check was stopped"
        for item in self._items:
            if item.nodeid not in self._results:
                left = replace(unreported(item), observed=said, stopped=True)
                self._results[item.nodeid] = left
                said = "it did not run, because the check was stopped"

    def reports(self) -> list[TestReport]:
        """One for every test; a test with several cases is as good as its worst case."""
        return self.reports_of(self._items)

    def reports_of(self, items: list[pytest.Function]) -> list[TestReport]:
        cases: dict[str, list[TestReport]] = {}
        for item in items:
            result = self._results.get(item.nodeid) or unreported(item)
            cases.setdefault(name_of(item), []).append(result)
        return [joined(reports) for reports in cases.values()]


class WaitingPlugin(ExercisePlugin):
    """Collects tests, and then does something else, in which they can be run: once."""

    def __init__(self, work: Callable[["WaitingPlugin"], None]) -> None:
        super().__init__(None, 0, None, None)
        self._work = work

    def pytest_runtestloop(self) -> bool:
        if not self.faults:
            self._read_ahead()
            self._work(self)
        return True

    def _read_ahead(self) -> None:
        """Once, and not for each student: where tests stand, and the texts of drivers."""
        for item in self._items:
            item.location  # noqa: B018 - kept by pytest, which asks for it before each test
        for module in {item.module for item in self._items}:
            for name, function in vars(module).items():
                if name.startswith("drive") and inspect.isfunction(function):
                    source_of(function)

    def run(self, student, seed: int, after: After | None = None) -> list[TestReport]:
        """Runs the collected tests, file by file. An interrupt ends it as it ends a session."""
        self._student, self._seed = student, seed
        reports: list[TestReport] = []
        for path, items in self._by_file().items():
            self._run_items(items)
            own = self.reports_of(items)
            reports += after(path, own) if after and not self.interrupted else own
        return reports

    def _by_file(self) -> dict[Path, list[pytest.Function]]:
        found: dict[Path, list[pytest.Function]] = {}
        for item in self._items:
            found.setdefault(Path(item.path), []).append(item)
        return found

    def _run_items(self, items: list[pytest.Function]) -> None:
        if self.interrupted:
            return
        run_one = items[0].config.hook.pytest_runtest_protocol
        try:
            for item, following in zip(items, [*items[1:], None], strict=True):
                run_one(item=item, nextitem=following)
        except (KeyboardInterrupt, pytest.exit.Exception):
            self.pytest_keyboard_interrupt(None)


def worst(reports: list[TestReport]) -> TestReport:
    return max(reports, key=lambda report: ORDER.index(report.outcome))


def joined(cases: list[TestReport]) -> TestReport:
    """One report of all cases of a test."""
    seconds, stopped = sum(c.seconds for c in cases), any(c.stopped for c in cases)
    return replace(worst(cases), seconds=seconds, stopped=stopped)


def result_of(item, report, call) -> TestReport:
    """What pytest found, as a TestReport."""
    fault = call.excinfo.value if call.excinfo is not None else None
    outcome = report.outcome if report.outcome in ("passed", "failed") else "not verified"
    if hasattr(report, "wasxfail"):
        outcome = "not verified"
    return replace(
        unreported(item),
        outcome=outcome,
        observed="" if outcome == "passed" else observation(fault, call),
        seconds=call.duration,
        kind=fault.kind if isinstance(fault, StudentError) else "",
    )


def declared(item):
    return getattr(item.function, MARK, None)


def name_of(item) -> str:
    return item.function.__name__


def unreported(item) -> TestReport:
    """The report of a test that has not run: it failed, until it says otherwise."""
    about, name = declared(item), name_of(item)
    return TestReport(
        exercise=about.exercise,
        test=name,
        title=title_of(name),
        points=about.points,
        invariant=about.invariant,
        cause=about.cause,
        file=Path(item.path).name,
    )


def observation(fault: BaseException | None, call) -> str:
    """What a test that did not pass saw, in a sentence: its assertion's message, or the error."""
    if isinstance(fault, StudentError):
        return said_by_student(fault)[:OBSERVED_LENGTH]
    text = (str(fault or "it is marked as expected to fail").strip().splitlines() or [""])[0]
    if isinstance(fault, AssertionError):
        text = text or f"this does not hold: {str(call.excinfo.traceback[-1].statement).strip()}"
    elif isinstance(fault, Exception):
        text = f"the test could not go on with what it got: {type(fault).__name__}: {text}"
    elif text.startswith(DID_NOT_RAISE):
        text = f"nothing was raised where {text.removeprefix(DID_NOT_RAISE)} was expected"
    return text[:OBSERVED_LENGTH]


def said_by_student(fault: StudentError) -> str:
    if fault.kind in ("Undefined", "ChangedArgument") or REFUSED in fault.message:
        return fault.message
    where = f" ({fault.line})" if fault.line else ""
    return f"your code raised {fault}{where}"
