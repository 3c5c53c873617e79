"""Reads a notebook file that may be anything, and keeps what grading needs of it: its cells.

Types, sources, ids and tags survive, and of the outputs what outputs.py keeps for a person to see.
Widget state, kernel names and all other metadata are dropped here, so nothing of them reaches a
page; outputs reach no grade and no hash.  What can be read with certainty is kept: one strange cell
or byte costs that cell, not the notebook, and a note says so (repair.py mends the file's text).
"""

import hashlib
import json
import re
from dataclasses import dataclass, field

from autograder.intake.outputs import Output, kept_outputs
from autograder.intake.repair import NotebookError, load_json, to_format_4

MAX_NOTEBOOK_BYTES = 20_000_000
MAX_CELLS = 2_000
MAX_SOURCE_CHARS = 2_000_000  # of all cells together
MAX_ID_CHARS = 100
MAX_CELL_NOTES = 5
KINDS = ("code", "markdown", "raw")
REPLACED = "\ufffd"
SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Cell:
    """One cell; `position` counts from 1, as a student counts."""

    position: int
    kind: str  # one of KINDS
    source: str
    grade_id: str | None = None
    cell_id: str | None = None
    tags: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()  # nbgrader's solution, grade, locked: only the release's count
    outputs: tuple[Output, ...] = field(default=(), compare=False, repr=False)


Notebook = tuple[Cell, ...]


def parse_notebook(data: bytes) -> Notebook:
    """Cells of a notebook file. Raises NotebookError whatever the bytes are."""
    return read_notebook(data)[0]


def read_notebook(data: bytes) -> tuple[Notebook, tuple[str, ...]]:
    """(cells, notes for the student on what was mended or left out); raises NotebookError."""
    if len(data) > MAX_NOTEBOOK_BYTES:
        raise NotebookError(f"the file is larger than {MAX_NOTEBOOK_BYTES // 10**6} MB")
    content, notes = load_json(data)
    content, more = to_format_4(content)
    cells, left_out = split_cells(content)
    return cells, (*notes, *more, *left_out, *replaced_notes(cells))


def notebook_cells(content: object) -> Notebook:
    """Cells of a decoded notebook (a dict, or nbformat's NotebookNode)."""
    return split_cells(content)[0]


def split_cells(content: object) -> tuple[Notebook, list[str]]:
    """(the cells that can be read, a note on those that cannot). Raises NotebookError."""
    if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
        raise NotebookError("the file has no list of cells: save it again with Jupyter")
    raw = content["cells"]
    if len(raw) > MAX_CELLS:
        raise NotebookError(f"the notebook has {len(raw)} cells, more than {MAX_CELLS}")
    cells, problems = [], []
    shown = kept_outputs(raw)
    for number, (cell, outputs) in enumerate(zip(raw, shown, strict=True), start=1):
        made = one_cell(number, cell, outputs)
        (cells if isinstance(made, Cell) else problems).append(made)
    if problems and not cells:
        raise NotebookError(f"no cell can be read: {problems[0]}")
    if sum(len(cell.source) for cell in cells) > MAX_SOURCE_CHARS:
        raise NotebookError(f"the cells hold more than {MAX_SOURCE_CHARS:,} characters")
    return tuple(cells), [f"Left out: {text}." for text in listed(problems)]


def listed(texts: list[str]) -> list[str]:
    """The first few, and how many more there are."""
    more = len(texts) - MAX_CELL_NOTES
    return texts[:MAX_CELL_NOTES] + ([f"{more} more cells like these"] if more > 0 else [])


def one_cell(position: int, raw: object, outputs: tuple[Output, ...] = ()) -> Cell | str:
    """A cell, or why it is none."""
    if not isinstance(raw, dict) or raw.get("cell_type") not in KINDS:
        return f"cell {position} is neither code nor markdown nor raw"
    source = raw.get("source", "")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        return f"the source of cell {position} is not text"
    metadata = as_dict(raw.get("metadata"))
    nbgrader, tags = as_dict(metadata.get("nbgrader")), metadata.get("tags")
    return Cell(
        position=position,
        kind=raw["cell_type"],
        source=clean(source),
        grade_id=as_id(nbgrader.get("grade_id")),
        cell_id=as_id(raw.get("id")),
        tags=tuple(filter(None, map(as_id, tags))) if isinstance(tags, list) else (),
        flags=tuple(name for name in ("solution", "grade", "locked") if nbgrader.get(name) is True),
        outputs=outputs,
    )


def replaced_notes(cells: Notebook) -> list[str]:
    """On the cells in which `clean` or the decoding had to put U+FFFD."""
    numbers = [str(cell.position) for cell in cells if REPLACED in cell.source]
    if not numbers:
        return []
    where = ", ".join(numbers[:MAX_CELL_NOTES]) + (", ..." if len(numbers) > MAX_CELL_NOTES else "")
    return [f"Characters that are no text were replaced by {REPLACED}: cell {where}."]


def as_dict(value: object) -> dict:
    return value if isinstance(value, dict) else {}


def as_id(value: object) -> str | None:
    short = isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARS
    return clean(value) if short else None


def clean(text: str) -> str:
    """Text that can be written as UTF-8: lone surrogates become U+FFFD, line ends become \\n."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return SURROGATE.sub(REPLACED, text)


def notebook_digest(cells: Notebook) -> str:
    """SHA-256 of what is graded: the same code has the same digest, whatever its outputs."""
    content = [[c.kind, c.source, c.grade_id, c.cell_id, c.tags] for c in cells]
    return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()
