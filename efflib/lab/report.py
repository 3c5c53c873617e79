"""The result of one test."""

from dataclasses import dataclass

NOT_REPORTED = "the test did not report"


@dataclass(frozen=True)
class TestReport:
    """One test of an exercise after it ran; only the outcome "passed" counts."""

    __test__ = False  # its name would make pytest take it for a test

    exercise: str
    test: str  # name of the test function
    title: str
    points: float
    invariant: str
    cause: str
    outcome: str = "failed"  # "passed", "failed" or "not verified"
    observed: str = NOT_REPORTED  # "" when passed
    file: str = ""  # name of the test file
    seconds: float = 0.0
    kind: str = ""  # type of the exception of the student's code, "" if there was none
    stopped: bool = False  # Ctrl-C kept it from being made; what code says ends up in `observed`
