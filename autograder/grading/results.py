"""The result of one submission: what results.json, the gradebook and the feedback are made from.

Points and texts come from the grader's own files.  What comes from a student (`message`, `cells`,
`notes`, `answers`, `own`, `look`) is plain text of limited length: escape it before it is HTML.
"""

import math
from pathlib import Path

import msgspec

SCHEMA = 2
NOT_ATTEMPTED = "not attempted"  # message of a test whose function is still the template
RECORDED = ("graded", "rejected")  # the states that say something about what a student handed in
SCORE_EPS = 1e-9  # see manifest.POINTS_EPS
TWICE = "Graded twice, alone the second time, with the same end: the code kills its own process."


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
    """A cell that grading ran; `error` is one line, or None; `seconds` what it cost."""

    label: str
    error: str | None = None
    seconds: float = 0.0  # CPU time, or a tenth of its time where that is more


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """On a lab's board, which gives no points: less is better.

    value: None if it does not count, for a reason; released: what the release has there.
    """

    value: float | None
    released: float
    unit: str
    reason: str = ""

    @property
    def untouched(self) -> bool:
        return self.value == self.released


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
    own: str = ""  # code of cells that the student added, or made of others
    look: dict[str, str] = {}  # grade_id of a written question -> why a person should look there
    board: Place | None = None  # of a lab that has one
    doubtful: bool = False
    cut_off: bool = False  # it took longer than its share while others waited
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


def untimed(result: Result) -> Result:
    """The result without when it was made and what that cost: the same for every run."""
    cells = tuple(msgspec.structs.replace(cell, seconds=0.0) for cell in result.cells)
    return msgspec.structs.replace(result, started="", seconds=0.0, cells=cells)


def settled(first: Result, second: Result) -> Result:
    """The second grading of a doubtful submission: beyond doubt if every test ended as before."""
    ends = [[(t.test, t.outcome) for part in r.exercises for t in part.tests]
            for r in (first, second)]  # fmt: skip
    if not second.doubtful or ends[0] != ends[1]:
        return second
    return msgspec.structs.replace(second, doubtful=False, notes=(*second.notes, TWICE))


class Late(msgspec.Struct, frozen=True):
    """A submission that came late, or has an extension, or no date although the lab is due.

    All points, and how many are taken off.
    """

    points: float
    taken_off: float
    seconds: float = 0.0  # after the due date; 0: on time
    due: str = ""  # the student's own date, "2026-10-01 23:59 Europe/Berlin"
    extended: bool = False  # it is a later date than that of the class
    dated: bool = True  # False: nobody knows when it was handed in, so nothing is taken off


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The file that `autograder grade --json` writes; the keys of its dicts are students."""

    schema: int = SCHEMA
    lab: str
    results: tuple[Result, ...]
    names: dict[str, str] = {}  # of people, where a roster or a course system told them
    late: dict[str, Late] = {}
    hand_ins: dict[str, int] = {}  # graded so far, where it is more than one


def encode(value: Result | Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def decode_result(data: bytes) -> Result:
    """Raises msgspec.DecodeError (or ValidationError) if the bytes are no Result of this schema."""
    result = msgspec.json.decode(data, type=Result)
    if result.schema != SCHEMA:
        raise msgspec.ValidationError(f"schema {result.schema}, expected {SCHEMA}")
    return result


def write_report(path: Path, report: Report) -> None:
    path.write_bytes(encode(report) + b"\n")


def read_report(path: Path) -> Report:
    """Raises msgspec.DecodeError (or ValidationError) if the bytes are no Report of this schema."""
    report = msgspec.json.decode(path.read_bytes(), type=Report)
    if report.schema != SCHEMA:
        raise msgspec.ValidationError(f"schema {report.schema}, expected {SCHEMA}")
    return report
