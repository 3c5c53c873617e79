"""Is a notebook another lab's? Only where it says so itself, and nothing in it says this lab.

Cells of all labs are called ex1, ex2, ..., so those names tell nothing.  What tells are the name in
`Lab("...")`, the ids and texts of released cells, and the functions that a lab's exercises define.
Students lose ids, delete cells and paste their work into notebooks of other labs: one sign of this
lab is enough for it to be graded.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from autograder.intake.layout import lab_folders
from autograder.intake.notebook import Cell, Notebook, NotebookError, parse_notebook
from autograder.labs.manifest import LabSpec

LAB_NAME = re.compile(r"""\bLab\(\s*["']([A-Za-z0-9_]+)["']""")
DEFINED = re.compile(
    r"\b(?:def|class)[ \t]+(\w+)|^[ \t]*(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", re.MULTILINE
)
MIN_IDS = 3  # of cells that only the other lab has, where no name says which lab it is


@dataclass(frozen=True)
class Signs:
    """By what a release can be told."""

    ids: frozenset[str] = frozenset()  # Jupyter's and nbgrader's, of cells
    texts: frozenset[str] = frozenset()  # of code cells
    defined: frozenset[str] = frozenset()  # names that its cells define
    answers: frozenset[str] = frozenset()  # those of them that its exercises ask for


def other_lab(cells: Notebook | Exception, lab: LabSpec) -> str:
    """Name of the lab that a notebook is of, where it is certainly not of this one; else ""."""
    others = sorted(lab_folders(lab) - {lab.name})
    if isinstance(cells, Exception) or not others:
        return ""
    if any(lab.name in LAB_NAME.findall(cell.source) for cell in cells):
        return ""
    code = [cell.source for cell in cells if cell.kind == "code"]
    named = {name for source in code for name in LAB_NAME.findall(source)}
    this, ids = released(lab.release_dir), signs(cells).ids
    labs = {name: released(lab.release_dir.parent / name) for name in others}
    only = {name: len(ids & (other.ids - this.ids)) for name, other in labs.items() if other.ids}
    best = max(only, key=lambda name: (name in named, only[name]), default="")
    says = best in named or only.get(best, 0) >= MIN_IDS
    return best if says and not any(shows(cell, this, labs[best]) for cell in cells) else ""


def shows(cell: Cell, this: Signs, other: Signs) -> bool:
    """Whether a cell is of `this` lab, or holds work for it, and is not the `other` lab's."""
    ids, text, defined = ids_of(cell), cell.source.strip(), names_in([cell])
    theirs = ids & other.ids or text in other.texts
    return bool(
        ids & (this.ids - other.ids)
        or text in this.texts - other.texts
        or defined & (this.answers - other.defined)
        or (defined & this.answers and not theirs)
    )


def signs(cells: Notebook) -> Signs:
    asked = [cell for cell in cells if "solution" in cell.flags and cell.kind == "code"]
    return Signs(
        ids=frozenset().union(*map(ids_of, cells)),
        texts=frozenset(c.source.strip() for c in cells if c.kind == "code") - {""},
        defined=names_in(cells),
        answers=names_in(asked),
    )


def ids_of(cell: Cell) -> frozenset[str]:
    return frozenset(filter(None, (cell.grade_id, cell.cell_id)))


def names_in(cells: Notebook | list[Cell]) -> frozenset[str]:
    """Defined in cells of any kind: work may stand in one that was made text."""
    found = (pair for cell in cells for pair in DEFINED.findall(cell.source))
    return frozenset(name for pair in found for name in pair if name)


def released(folder: Path) -> Signs:
    """Signs of the notebook that a lab gives out; none if there is no such notebook."""
    paths = sorted(folder.glob("*.ipynb"))
    return read(paths[0], paths[0].stat().st_mtime_ns) if len(paths) == 1 else Signs()


@lru_cache(maxsize=64)
def read(path: Path, version: int) -> Signs:
    """version: when the file changed, so that a new release is read anew."""
    try:
        return signs(parse_notebook(path.read_bytes()))
    except (OSError, NotebookError):
        return Signs()
