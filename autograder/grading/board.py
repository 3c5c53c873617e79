"""A lab's board: one number of each submission that gives no points, less is better.

A suite with a board has a file board.py beside its tests:

    UNIT = "modelled s"            of the number
    class Released                 what the release has in place of a student's functions
    def measure(student) -> float  raises ValueError, with a sentence, for what does not count

`measure` calls the student's functions as a test does, and computes the number outside, from work
that it counts itself.  Cells that it needs are no demonstrations, so that grading runs them.  They
are called in a sandbox that has met no hidden test, and what they raise is told by its kind alone.
"""

import importlib.util
import math
import time
from pathlib import Path
from types import ModuleType

from autograder.grading.judge import FIXED
from autograder.grading.limited import TimedStudent
from autograder.grading.results import Place
from autograder.labs.manifest import LabSpec
from autograder.sandbox.remote import RemoteStudent
from efflib.lab.seeds import derived_seed
from efflib.lab.student import StudentError

BOARD = "board.py"
SECONDS, CALL_SECONDS = 30.0, 2.0  # of all calls together, and of each


def place_of(
    lab: LabSpec, student: RemoteStudent, seed: int, end: float | None = None
) -> Place | None:
    """The place of a submission; None where the lab has no board. end: as of `grade_one`."""
    path = lab.suite_dir / BOARD
    if not path.is_file():
        return None
    board = loaded(path)
    released, limit = board.measure(board.Released()), time.monotonic() + SECONDS
    timed = TimedStudent(student.limited_to(CALL_SECONDS), min(limit, end or math.inf))
    timed._begin(derived_seed(seed, BOARD))
    value, reason = None, ""
    try:
        student.renew()
        value = float(board.measure(timed))
    except StudentError as fault:
        reason = FIXED.get(fault.kind, "a function raised an exception or took too long")
    except ValueError as fault:
        reason = str(fault)
    return Place(value=value, released=released, unit=board.UNIT, reason=reason)


def loaded(path: Path) -> ModuleType:
    """The suite's module, under no name that another suite's has."""
    spec = importlib.util.spec_from_file_location(f"board_of_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def told_place(place: Place | None) -> list[str]:
    """What a student is told of it; nothing of a board that was left as it was released."""
    if place is None or place.untouched:
        return []
    if place.value is None:
        return [f"The board (no points): it does not count: {place.reason}."]
    own, before = (f"{value:.4g}" for value in (place.value, place.released))
    return [f"The board (no points): {own} {place.unit}; as released: {before}."]
