"""The board of a class: who changed what a lab's board counts, best first."""

from collections.abc import Sequence
from typing import NamedTuple

from autograder.report.rows import Row


class Board(NamedTuple):
    unit: str
    released: float
    untouched: int  # submissions that left it as it was released
    invalid: int
    places: list[tuple[int, str, float]]  # place (equal ones share it), label of the row, value


def board_of(rows: Sequence[Row]) -> Board | None:
    """None where the lab has no board. Raises nothing for results of before it had one."""
    found = [(row, row.result.board) for row in rows if row.result.board is not None]
    if not found:
        return None
    counted = [(row, own.value) for row, own in found if own.value is not None]
    changed = [(row, value) for row, value in counted if not row.result.board.untouched]
    changed.sort(key=lambda pair: (pair[1], pair[0].number))
    values = [value for _, value in changed]
    places = [(values.index(value) + 1, row.label, value) for row, value in changed]
    last = found[-1][1]
    left, invalid = len(counted) - len(changed), len(found) - len(counted)
    return Board(last.unit, last.released, left, invalid, places)
