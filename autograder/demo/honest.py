"""Nine students who mean well: what each of them hands in.

Every function takes a `Kit` and returns the notebook; its docstring says what it is an example of.
"""

import copy
import re
from dataclasses import dataclass

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from autograder.demo.entries import Entries


@dataclass(frozen=True)
class Kit:
    """What a student starts from, and the answers that some of them have found."""

    release: NotebookNode
    solved: dict[str, str]  # grade_id -> source of the solved cell
    functions: dict[str, tuple[str, ...]]  # exercise -> names of its functions
    rights: dict[str, str]  # exercise -> it solved otherwise
    wrongs: dict[str, str]  # exercise -> the wrong variant that entries.partly_right names
    entries: Entries

    def filled(self, **answers: str) -> NotebookNode:
        """The release with the solved cells and written answers, some of them replaced."""
        nb, given = copy.deepcopy(self.release), self.solved | self.entries.answers | answers
        for cell in nb.cells:
            cell.source = given.get(grade_id(cell), cell.source)
        return nb

    def whole(self, exercise: str, text: str) -> str:
        """A solution of the triad, behind the canonical one where it needs that."""
        whole = all(f"def {function}(" in text for function in self.functions[exercise])
        return text if whole else f"{self.solved[exercise]}\n\n\n{text}"


def grade_id(cell: NotebookNode) -> str | None:
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def place(nb: NotebookNode, name: str) -> int:
    """Index of the cell with this grade_id."""
    return [grade_id(cell) for cell in nb.cells].index(name)


def right(kit: Kit) -> NotebookNode:
    """Everything right: full points; the written answers wait for a person."""
    return kit.filled()


def right_otherwise(kit: Kit) -> NotebookNode:
    """Everything right by other algorithms than the reference's: full points as well."""
    return kit.filled(
        **{exercise: kit.whole(exercise, text) for exercise, text in kit.rights.items()}
    )


def partly_right(kit: Kit) -> NotebookNode:
    """Two exercises with mistakes that people make: only tests that see them cost points."""
    return kit.filled(
        **{exercise: kit.whole(exercise, text) for exercise, text in kit.wrongs.items()}
    )


def empty(kit: Kit) -> NotebookNode:
    """The notebook as it was handed out: no points, and no question for a person."""
    return copy.deepcopy(kit.release)


def helpers(kit: Kit) -> NotebookNode:
    """Right, in an untidy way: a helper at the end, a scratch cell that raises, magics."""
    name = kit.functions["ex1"][-1]
    call = f"def {name}(*args, **kwargs):\n    return my_{name}(*args, **kwargs)"
    helper = re.sub(rf"\b{name}\b", f"my_{name}", kit.solved["ex1"])
    nb = kit.filled(ex1=f"%matplotlib inline\n{call}")
    nb.cells.insert(place(nb, "ex2"), new_code_cell("1 / 0  # just trying something"))
    nb.cells.insert(place(nb, "ex3"), new_code_cell("!pip install left-pad\n%timeit sum(range(9))"))
    nb.cells.append(new_code_cell(helper))
    return nb


def messy(kit: Kit) -> NotebookNode:
    """Right, in a damaged notebook: copies, a split cell, a deleted check, points changed."""
    nb = kit.filled()
    copied = copy.deepcopy(nb.cells[place(nb, "ex2")])
    copied.source = kit.release.cells[place(kit.release, "ex2")].source
    nb.cells.insert(place(nb, "ex2"), copied)  # the stub comes first: the last definition counts
    whole = nb.cells[place(nb, "ex3")]
    rest = copy.deepcopy(whole)
    lines = whole.source.split("\n")
    half = lines.index("    ") if "    " in lines else len(lines) // 2
    whole.source, rest.source = "\n".join(lines[:half]), "\n".join(lines[half:])
    nb.cells.insert(place(nb, "ex3") + 1, rest)
    del nb.cells[place(nb, "ex1-check")]
    changed = nb.cells[place(nb, "ex4-check")].metadata.nbgrader
    changed.points, changed.locked, changed.solution = 100, False, True
    for number, cell in enumerate(nb.cells):
        cell.id = f"cell-{number}"  # copies made in Jupyter get ids of their own
    return nb


def endless_loop(kit: Kit) -> NotebookNode:
    """One function does not end on some inputs: it costs those tests and nothing else."""
    endless = kit.entries.endless
    whole = f"{kit.solved[endless.exercise]}\n\n\n{endless.code}"
    return kit.filled(**{endless.exercise: whole})


def not_a_notebook(kit: Kit) -> bytes:
    """A merge conflict left in the file: 0 points, with a reason."""
    lines = nbformat.writes(kit.filled()).split("\n")
    mine, theirs = ["<<<<<<< HEAD", *lines[5:8], "======="], [*lines[5:8], ">>>>>>> main"]
    return "\n".join([*lines[:5], *mine, *theirs, *lines[8:]]).encode()


def zipped(kit: Kit) -> NotebookNode:
    """Right, and packed into a zip together with other files (see make_class)."""
    return kit.filled()
