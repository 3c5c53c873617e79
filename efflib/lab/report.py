"""The result of one test, and how it is worded."""

from dataclasses import dataclass, replace

NOT_REPORTED = "the test did not report"


@dataclass(frozen=True)
class TestReport:
    """One test of an exercise after it ran; only the outcome "passed" counts."""

    __test__ = False  # its name would make pytest take it for a test

    exercise: str
    test: str
    title: str
    points: float
    invariant: str
    cause: str
    outcome: str = "failed"  # "passed", "failed" or "not verified"
    observed: str = NOT_REPORTED
    kind: str = ""  # type of the exception of the student's code, "" if there was none
    file: str = ""
    seconds: float = 0.0

    def with_outcome(self, outcome: str, observed: str, kind: str, seconds: float) -> "TestReport":
        return replace(self, outcome=outcome, observed=observed, kind=kind, seconds=seconds)
