"""A cell that was split in the middle becomes one again.

Neighbours of which one is not Python are joined if together they are.  Cells with a cell magic are
left as they are: what follows `%%bash` is no Python, whatever it is joined with.
"""

from dataclasses import replace

from autograder.grading.magics import Reader, cell_magic, indented
from autograder.grading.structure import Placed

MAX_PARTS = 4  # into how many parts a cell may have been split
MAX_JOINED_CHARS = 20_000


def join_split_cells(kept: list[Placed], read: Reader) -> tuple[list[Placed], list[str]]:
    """The cells with split ones joined, and a note on each of those."""
    result, notes, index = list(kept), [], 0
    while index < len(result) and read.left > 0:
        split = broken(result[index].cell.source, read)
        window = parts_around(result, index, read) if split else None
        if window is None:
            index += 1
            continue
        parts = result[window]
        origin = next((item.origin for item in parts if item.origin), None)
        result[window] = [Placed(replace(parts[0].cell, source=joined(parts)), origin)]
        numbers = " and ".join(str(item.cell.position) for item in parts)
        notes.append(f"Cells {numbers} are parts of one cell: they were joined.")
        index = window.start
    return result, notes


def broken(source: str, read: Reader) -> bool:
    """Not a cell of its own: not Python, or an indented start (which IPython would take away)."""
    reading = read(source)
    return not reading.sound or (reading.changed and indented(source))


def parts_around(items: list[Placed], index: int, read: Reader) -> slice | None:
    """The smallest run of neighbours with this cell in it that is Python when joined."""
    alone = read(items[index].cell.source).sound  # Python once the indentation is gone
    for size in range(2, MAX_PARTS + 1):
        for start in range(max(0, index - size + 1), min(index, len(items) - size) + 1):
            parts = items[start : start + size]
            if joinable(parts, strict=alone) and not broken(joined(parts), read):
                return slice(start, start + size)
    return None


def joinable(parts: list[Placed], strict: bool) -> bool:
    """Parts of one exercise (or of none); strict: all of them carry its id."""
    if any(item.role not in ("solution", "own") or cell_magic(item.cell.source) for item in parts):
        return False
    ids = {item.id for item in parts}
    small = sum(len(item.cell.source) for item in parts) <= MAX_JOINED_CHARS
    return small and (len(ids) == 1 if strict else len(ids - {None}) <= 1) and ids != {None}


def joined(parts: list[Placed]) -> str:
    return "\n".join(item.cell.source for item in parts)
