"""The pytest plugin that runs tests declared with `@exercise` and reports what each observed."""

import hashlib
from pathlib import Path

import pytest
import torch

from efflib.lab.exercise import MARK
from efflib.lab.report import TestReport
from efflib.lab.student import StudentError

OBSERVED_LENGTH = 400


def title_of(test: str) -> str:
    """'zero is exact' of 'test_zero_is_exact'."""
    return test.removeprefix("test_").replace("_", " ")


class ExercisePlugin:
    """Provides the fixtures `student` and `rng`; collects one TestReport for every test."""

    def __init__(self, student, seed: int, only: str | None) -> None:
        self._student, self._seed, self._only = student, seed, only
        self.reports: dict[tuple[str, str], TestReport] = {}
        self._faults: dict[str, BaseException] = {}

    @pytest.fixture
    def student(self, request):
        declared = getattr(request.function, MARK)
        with_limit = getattr(self._student, "limited_to", None)
        return with_limit(declared.seconds) if with_limit and declared.seconds else self._student

    @pytest.fixture
    def rng(self, request) -> torch.Generator:
        key = f"{self._seed}/{request.function.__name__}".encode()
        seed = int.from_bytes(hashlib.sha256(key).digest()[:8], "big") >> 1
        return torch.Generator().manual_seed(seed)

    def pytest_collection_modifyitems(self, items) -> None:
        wanted = [i for i in items if hasattr(i.function, MARK)]
        if self._only is not None:
            wanted = [i for i in wanted if getattr(i.function, MARK).exercise == self._only]
        items[:] = wanted
        for item in items:
            report = unreported(item.path, item.function)
            self.reports[item.path.name, item.function.__name__] = report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if call.excinfo is not None:
            self._faults[item.nodeid] = call.excinfo.value
        if report.when == "call" or report.failed or report.skipped:
            self._record(item, report, call.duration)
        return report

    def _record(self, item, report, seconds: float) -> None:
        fault = self._faults.get(item.nodeid)
        outcome = {"passed": "passed", "failed": "failed"}.get(report.outcome, "not verified")
        if hasattr(report, "wasxfail"):
            outcome = "not verified"
        observed = "" if outcome == "passed" else observation(fault)
        base = unreported(item.path, item.function)
        kind = fault.kind if isinstance(fault, StudentError) else ""
        self.reports[item.path.name, item.function.__name__] = base.with_outcome(
            outcome, observed, kind, seconds
        )


def unreported(path: Path, function) -> TestReport:
    """The report of a test that has not run: it failed, until it says otherwise."""
    d = getattr(function, MARK)
    name = function.__name__
    return TestReport(
        d.exercise, name, title_of(name), d.points, d.invariant, d.cause, file=path.name
    )


def observation(fault: BaseException | None) -> str:
    """What a failing test saw, in a sentence: the message of its assertion, or the error."""
    if isinstance(fault, StudentError):
        if fault.kind == "Undefined":
            return fault.message
        where = f" ({fault.line})" if fault.line else ""
        return f"your code raised {fault}{where}"[:OBSERVED_LENGTH]
    text = str(fault).strip().splitlines() if fault is not None else []
    return (text[0] if text else type(fault).__name__)[:OBSERVED_LENGTH]
