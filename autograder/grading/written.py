"""Finds written answers that are not in the cell made for them.

An answer belongs to its question.  If the cell for it is empty or gone, what the student wrote
between the question and the next cell of the release is taken; without a question, what stands
between the cells that are neighbours of the answer in the release.  If there is nothing either, a
question or text that the student changed may hold it.  In all these cases a person is told to look:
an answer is never silently missing.
"""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autograder.grading.definitions import statements
from autograder.grading.structure import Placed, role
from autograder.intake.notebook import Cell, Notebook

ENOUGH = 0.75  # part of a question's words by which it is known again
MAX_WORDS = 2_000  # of a cell that is compared with questions


@dataclass(frozen=True)
class Found:
    """Text that is taken as an answer, and why a person should look ("": it is in its cell)."""

    text: str
    look: str = ""


def find_written(placed: Sequence[Placed], release: Notebook) -> dict[str, Found]:
    """grade_id -> answer, of all written questions that have one."""
    placed = known_questions(placed, release)
    found: dict[str, Found] = {}
    for cell in release:
        if role(cell) == "written" and cell.grade_id:
            answer = in_its_cell(placed, cell, release) or near(placed, cell, release)
            if answer:
                found[cell.grade_id] = answer
    taken = "\n".join(answer.text for answer in found.values())
    for cell in release:
        if role(cell) == "written" and cell.grade_id and cell.grade_id not in found:
            answer = elsewhere(placed, cell, taken)
            if answer:
                found[cell.grade_id] = answer
    return found


def known_questions(placed: Sequence[Placed], release: Notebook) -> list[Placed]:
    """Text cells that lost their ids stand for the released text whose words they hold."""
    known = {item.origin.position for item in placed if item.origin}
    lost = [c for c in release if role(c) == "text" and c.position not in known and words(c.source)]
    result = list(placed)
    texts = [k for k, item in enumerate(result) if item.origin is None and item.cell.kind != "code"]
    held = {k: words(result[k].cell.source) for k in texts}
    for cell in lost:
        wanted, same = words(cell.source), cell.source.strip()
        shares = {k: (wanted & held[k]).total() / wanted.total() for k in held}
        shares |= {k: 2.0 for k in held if result[k].cell.source.strip() == same}
        best = max(shares, key=shares.get, default=None)
        if best is not None and shares[best] >= ENOUGH:
            result[best] = replace(result[best], origin=cell)
            del held[best]
    return result


def words(text: str) -> Counter:
    return Counter(re.findall(r"\w+", text.lower())[:MAX_WORDS])


def in_its_cell(placed: Sequence[Placed], cell: Cell, release: Notebook) -> Found | None:
    """All copies of the cell that say something, and what was written beside them."""
    own = [item for item in placed if item.id == cell.grade_id and says_something(item, cell)]
    more = beside(placed, cell, release) if own else []
    look = f"{named(cell)}: there is more of the answer in {cells(more)}." if more else ""
    return Found(together([*own, *more]), look) if own else None


def says_something(item: Placed, cell: Cell) -> bool:
    return item.cell.source.strip() not in ("", cell.source.strip())


def beside(placed: Sequence[Placed], cell: Cell, release: Notebook) -> list[Placed]:
    """Text of the student's own between the question and the next cell of the release."""
    start = place_of(placed, asks(cell, release))
    if start is None:
        before = [k for k, i in enumerate(placed) if i.origin and i.origin.position < cell.position]
        start = max(before, key=lambda k: (placed[k].origin.position, k), default=-1)
    items = []
    for item in placed[start + 1 :]:
        if item.origin is not None and item.id != cell.grade_id:
            break
        if item.origin is None and is_text(item) and says_something(item, cell):
            items.append(item)
    return items


def near(placed: Sequence[Placed], cell: Cell, release: Notebook) -> Found | None:
    """What the student wrote below the question, or into it."""
    items = beside(placed, cell, release)
    if items:
        return Found(together(items), f"{named(cell)}: the answer was found in {cells(items)}.")
    question = asks(cell, release)
    changed = [item for item in placed if question is not None and item.origin == question]
    changed = [item for item in changed if words(item.cell.source) - words(question.source)]
    if not changed:
        return None
    why = f"{named(cell)}: {cells(changed)}, the question, was changed and may hold the answer."
    return Found(together(changed), why)


def asks(cell: Cell, release: Notebook) -> Cell | None:
    """The question of an answer: the released text before its cell."""
    before = release[cell.position - 2] if cell.position > 1 else None
    return before if before is not None and role(before) == "text" else None


def place_of(placed: Sequence[Placed], cell: Cell | None) -> int | None:
    here = (k for k, item in enumerate(placed) if cell is not None and item.origin == cell)
    return next(here, None)


def is_text(item: Placed) -> bool:
    """A text cell, or a code cell in which somebody wrote prose: a string, or no statement."""
    source = item.cell.source
    if item.cell.kind != "code":
        return True
    strings = all(isinstance(getattr(n, "value", n), ast.Constant) for n in statements(source))
    return strings and not source.lstrip().startswith(("%", "!"))


def elsewhere(placed: Sequence[Placed], cell: Cell, taken: str) -> Found | None:
    """Text of the student's own anywhere, which is no answer yet."""
    own = [item for item in placed if item.origin is None and item.cell.kind != "code"]
    own = [item for item in own if says_something(item, cell) and item.cell.source not in taken]
    if not own:
        return None
    return Found(together(own), f"{named(cell)}: nothing stands there, but {cells(own)} may be it.")


def together(items: Sequence[Placed]) -> str:
    return "\n\n".join(item.cell.source for item in items)


def cells(items: Sequence[Placed]) -> str:
    numbers = [str(item.cell.position) for item in items]
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return ("cell " if len(numbers) == 1 else "cells ") + ", ".join(numbers[:5]) + more


def named(cell: Cell) -> str:
    return f"Written question {cell.grade_id.removeprefix('w')}"
