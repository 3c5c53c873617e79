"""Reads a notebook file that may be anything, and keeps what grading needs of it: its cells.

Types, sources, ids and tags survive, and of the outputs what outputs.py keeps for a person to see.
Widget state, kernel names and all other metadata are dropped here, so nothing of them reaches a
page; outputs reach no grade and no hash.
"""

import hashlib
import json
from dataclasses import dataclass, field

from autograder.intake.outputs import Output, kept_outputs

MAX_NOTEBOOK_BYTES = 20_000_000
MAX_CELLS = 2_000
MAX_SOURCE_CHARS = 2_000_000  # of all cells together
MAX_ID_CHARS = 100
KINDS = ("code", "markdown", "raw")
CONFLICT = ("<<<<<<< ", ">>>>>>> ")


class NotebookError(Exception):
    """The file is not a notebook that can be graded; the text is for the student."""


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
    if len(data) > MAX_NOTEBOOK_BYTES:
        raise NotebookError(f"the file is larger than {MAX_NOTEBOOK_BYTES // 10**6} MB")
    if not data.strip():
        raise NotebookError("the file is empty")
    try:
        content = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise NotebookError("the file is not text in UTF-8") from None
    except RecursionError:
        raise NotebookError("the file is nested too deeply to be a notebook") from None
    except ValueError:
        raise NotebookError(not_json(data)) from None
    return notebook_cells(content)


def not_json(data: bytes) -> str:
    lines = data.decode("utf-8", "replace").splitlines()
    if any(line.startswith(CONFLICT) for line in lines):
        return "the file holds merge-conflict markers (<<<<<<<): resolve the conflict first"
    return "the file is not a notebook (not JSON)"


def notebook_cells(content: object) -> Notebook:
    """Cells of a decoded notebook (a dict, or nbformat's NotebookNode)."""
    if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
        raise NotebookError("the file has no list of cells: save it again with Jupyter")
    raw = content["cells"]
    if len(raw) > MAX_CELLS:
        raise NotebookError(f"the notebook has {len(raw)} cells, more than {MAX_CELLS}")
    shown = kept_outputs(raw)
    cells = tuple(
        one_cell(number, cell, outputs)
        for number, (cell, outputs) in enumerate(zip(raw, shown, strict=True), start=1)
    )
    if sum(len(cell.source) for cell in cells) > MAX_SOURCE_CHARS:
        raise NotebookError(f"the cells hold more than {MAX_SOURCE_CHARS:,} characters")
    return cells


def one_cell(position: int, raw: object, outputs: tuple[Output, ...] = ()) -> Cell:
    if not isinstance(raw, dict) or raw.get("cell_type") not in KINDS:
        raise NotebookError(f"cell {position} is neither code nor markdown nor raw")
    source = raw.get("source", "")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        raise NotebookError(f"the source of cell {position} is not text")
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


def as_dict(value: object) -> dict:
    return value if isinstance(value, dict) else {}


def as_id(value: object) -> str | None:
    short = isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARS
    return clean(value) if short else None


def clean(text: str) -> str:
    """Text that can be written as UTF-8: lone surrogates become U+FFFD, line ends become \\n."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def notebook_digest(cells: Notebook) -> str:
    """SHA-256 of what is graded: the same code has the same digest, whatever its outputs."""
    content = [[c.kind, c.source, c.grade_id, c.cell_id, c.tags] for c in cells]
    return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()
