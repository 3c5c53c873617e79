"""Which released cell does a cell of a submission stand for?

What a cell is (solution, check, demonstration, set-up, written answer) is read from the release;
the submission's own flags, points and types count for nothing.
"""

import re
from dataclasses import dataclass

from autograder.intake.notebook import Cell, Notebook
from autograder.intake.repair import CONFLICT

DEMO_TAGS = {"demo", "skip-grading"}
DEFINED = re.compile(r"^(?:async +def|def|class) +(\w+)|^(\w+) *(?::[^=\n]*)?=(?!=)", re.MULTILINE)
IMPORTS = re.compile(r"^(?:from|import) ", re.MULTILINE)


@dataclass(frozen=True)
class Placed:
    """A cell of the submission and the released cell that it stands for, if any."""

    cell: Cell
    origin: Cell | None
    restored: bool = False  # not in the submission: put back from the release

    @property
    def role(self) -> str:
        return role(self.origin) if self.origin else "own"

    @property
    def id(self) -> str | None:
        return self.origin.grade_id if self.origin else None

    @property
    def untouched(self) -> bool:
        return self.origin is not None and self.cell.source.strip() == self.origin.source.strip()


def role(cell: Cell) -> str:
    """What a released cell is for."""
    if "solution" in cell.flags:
        return "solution" if cell.kind == "code" else "written"
    if "grade" in cell.flags:
        return "check"
    if cell.kind != "code":
        return "text"
    return "demo" if DEMO_TAGS & set(cell.tags) else "setup"


def exercise_name(grade_id: str) -> str:
    """ "ex2" -> "exercise 2", "ex2-b" -> "exercise 2 (ex2-b)"; other ids stay as they are."""
    number = re.fullmatch(r"ex(\d+)(-.*)?", grade_id)
    if number is None:
        return grade_id
    return f"exercise {number[1]}" + (f" ({grade_id})" if number[2] else "")


def defined(source: str) -> set[str]:
    """Names that a cell binds on its top level (by its text: it may not even parse)."""
    return {name for pair in DEFINED.findall(source) for name in pair if name}


def match_cells(submission: Notebook, release: Notebook) -> list[Placed]:
    """By nbgrader's id, else by Jupyter's cell id, else by the same text."""
    by_grade_id = {cell.grade_id: cell for cell in release if cell.grade_id}
    by_cell_id = {cell.cell_id: cell for cell in release if cell.cell_id}
    by_text = {cell.source.strip(): cell for cell in release if cell.kind == "code"}
    placed = []
    for cell in submission:
        origin = by_grade_id.get(cell.grade_id) or by_cell_id.get(cell.cell_id)
        if origin is None and cell.source.strip():
            origin = by_text.get(cell.source.strip())
        placed.append(Placed(cell, origin))
    return placed


def collect_answers(placed: list[Placed], release: Notebook) -> dict[str, str]:
    """grade_id -> what the student wrote there: all copies of the cell, or its new home."""
    answers = {}
    for cell in release:
        if cell.grade_id is None or role(cell) not in ("solution", "written"):
            continue
        copies = [item for item in placed if item.id == cell.grade_id]
        changed = [item for item in copies if not item.untouched]
        if role(cell) == "solution" and not changed:
            changed = [item for item in placed if defines(item, cell)]
        found = changed or copies
        if found:
            answers[cell.grade_id] = "\n\n".join(item.cell.source for item in found)
    return answers


def defines(item: Placed, released: Cell) -> bool:
    """A cell of the student's own with all functions of a released template."""
    names = defined(released.source)
    own = item.cell.kind == "code" and item.role == "own"
    return own and bool(names) and names <= defined(item.cell.source)


def structure_notes(placed: list[Placed], answers: dict[str, str], release: Notebook) -> list[str]:
    """Sentences on what a student should repair in the notebook itself."""
    notes = []
    for cell in release:
        if cell.grade_id and role(cell) == "solution" and cell.grade_id not in answers:
            name = exercise_name(cell.grade_id)
            notes.append(f"The cell of {name} is missing: there is nothing to grade.")
    for item in placed:
        number = item.cell.position
        if item.role == "solution" and item.cell.kind != "code":
            notes.append(
                f"Cell {number} ({exercise_name(item.id)}) is a {item.cell.kind} cell, so its code "
                "was not run: turn it back into a code cell."
            )
        if any(line.startswith(CONFLICT) for line in item.cell.source.split("\n")):
            notes.append(f"Cell {number} holds merge-conflict markers (<<<<<<<): resolve them.")
    return notes
