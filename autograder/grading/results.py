"""The result of one submission: what results.json, the gradebook and the feedback are made from.

Points and texts come from the grader's own files.  What comes from a student (`message`, `cells`,
`notes`, `answers`, `look`) is plain text of limited length: escape it before it becomes HTML.
"""

import math
from pathlib import Path

import msgspec

SCHEMA = 2
RECORDED = ("graded", "rejected")  # the states that say something about what a student handed in
SCORE_EPS = 1e-9  # see manifest.POINTS_EPS


class TestResult(msgspec.Struct, frozen=True, kw_only=True):
    """One test. Only `passed` gives points; a hidden test's message never holds data."""

    __test__ = False  # pytest: not a test class

    exercise: str
    test: str
    title: str
    kind: str  # "public" | "hidden"
    outcome: str  # "passed" | "failed" | "not verified"
    points: float
    max_points: float
    invariant: str
    cause: str
    message: str = ""


class ExerciseResult(msgspec.Struct, frozen=True, kw_only=True):
    exercise: str
    title: str
    points: float
    max_points: float
    tests: tuple[TestResult, ...]


class CellRun(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that grading ran; `error` is one line, or None."""

    label: str
    error: str | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is kept of one graded, rejected or failed submission.

    status: "graded"; "rejected": nothing could be graded, reason says why, score is 0;
    "fault": the grader itself failed (reason). A fault is no grade: grade again.
    "missing": the student handed in nothing; "unclear": nobody can tell whose it is, or which of
    several counts (reason). Neither is a grade, whatever the score says.
    doubtful: a sandbox was killed more often than was repeated, perhaps not by the student's code.
    """

    schema: int = SCHEMA
    student: str
    lab: str
    status: str
    reason: str = ""
    score: float = 0.0  # points of tests
    max_score: float
    exercises: tuple[ExerciseResult, ...] = ()
    written: dict[str, float] = {}  # questions that await a person: grade_id -> points
    answers: dict[str, str] = {}  # grade_id -> what stands in a solution cell or written answer
    look: dict[str, str] = {}  # grade_id of a written question -> why a person should look there
    doubtful: bool = False
    notes: tuple[str, ...] = ()
    cells: tuple[CellRun, ...] = ()
    seed: int = 0
    submission_hash: str = ""
    suite_hash: str = ""
    efflib_hash: str = ""
    grader_hash: str = ""
    sandbox: str = "bubblewrap"  # "none": graded with --unsafe-no-sandbox
    started: str = ""  # UTC, ISO 8601
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """No score outside 0..max_score, whatever happened before."""
        for points, top in [(self.score, self.max_score), *self.parts()]:
            if not (math.isfinite(points) and 0 <= points <= top + SCORE_EPS):
                raise ValueError(f"{self.student}: {points} of {top} points")

    def parts(self) -> list[tuple[float, float]]:
        tests = [test for exercise in self.exercises for test in exercise.tests]
        return [(part.points, part.max_points) for part in (*self.exercises, *tests)]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The file that `autograder grade --json` writes."""

    schema: int = SCHEMA
    lab: str
    results: tuple[Result, ...]


def encode(value: Result | Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def decode_result(data: bytes) -> Result:
    """Raises msgspec.DecodeError (or ValidationError) if the bytes are no Result of this schema."""
    result = msgspec.json.decode(data, type=Result)
    if result.schema != SCHEMA:
        raise msgspec.ValidationError(f"schema {result.schema}, expected {SCHEMA}")
    return result


def write_report(path: Path, lab: str, results: list[Result]) -> None:
    path.write_bytes(encode(Report(lab=lab, results=tuple(results))) + b"\n")


def read_report(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)
