"""What a student's notebook showed when it was handed in, put into the executed notebook.

Grading runs no plots, so a person who marks sees the student's own: text and pictures that
autograder/intake/outputs.py let in, below the released cell they belong to, with a line that says
whose they are.  Checks show the grader's words only.
"""

import nbformat
from nbformat import NotebookNode

from autograder.grading.structure import Placed, role
from autograder.intake.notebook import Cell, Notebook
from autograder.intake.outputs import Output

FROM_STUDENT = "Handed in by the student; grading did not make this:\n"
FROM_OTHER_CODE = "Handed in by the student, from other code than stands here:\n"
OWN_CELL = "# A cell of the student's own (number {0}), with what it showed when handed in.\n"


def outputs_by_cell(placed: list[Placed]) -> dict[int, list[NotebookNode]]:
    """Position of a released cell -> outputs to show there, the first of which says whose."""
    found: dict[int, list[NotebookNode]] = {}
    for item in placed:
        if item.origin is None or item.role == "check" or not item.cell.outputs:
            continue
        same = item.role == "solution" or item.untouched
        head = stream(FROM_STUDENT if same else FROM_OTHER_CODE)
        shown = [as_output(output) for output in item.cell.outputs]
        found.setdefault(item.origin.position, []).extend([head, *shown])
    return found


def own_cells_near(placed: list[Placed], release: Notebook) -> dict[str, list[Cell]]:
    """Written question -> the student's own cells with pictures that stand beside it."""
    written = [cell for cell in release if role(cell) == "written"]
    return {
        cell.grade_id: [item.cell for item in placed[slice(*around(placed, cell))] if drawn(item)]
        for cell in written
    }


def drawn(item: Placed) -> bool:
    own = item.origin is None and item.cell.kind == "code"
    return own and any(output.kind == "picture" for output in item.cell.outputs)


def around(placed: list[Placed], question: Cell) -> tuple[int, int]:
    """The cells of a submission between the released code or question before, and the one after."""
    known = [
        (index, item.origin.position)
        for index, item in enumerate(placed)
        if item.origin is not None and role(item.origin) != "text"
    ]
    before = [index for index, position in known if position < question.position]
    after = [index for index, position in known if position > question.position]
    return max(before, default=-1) + 1, min(after, default=len(placed))


def own_cell(cell: Cell, question: str) -> NotebookNode:
    """A student's own cell as a cell of the executed notebook."""
    made = nbformat.v4.new_code_cell(
        OWN_CELL.format(cell.position) + cell.source, id=f"own-{question}-{cell.position}"
    )
    made.outputs = [stream(FROM_STUDENT), *(as_output(output) for output in cell.outputs)]
    made.metadata["autograder"] = nbformat.from_dict({"own": True})
    return made


def as_output(output: Output) -> NotebookNode:
    """An output of nbformat's; every viewer escapes these kinds."""
    new = nbformat.v4.new_output
    if output.kind == "picture":
        return new("display_data", data={"image/png": output.text})
    if output.kind == "result":
        return new("display_data", data={"text/plain": output.text})
    if output.kind == "error":
        name, _, value = output.text.partition(": ")
        return new("error", ename=name, evalue=value, traceback=[output.text])
    return stream(output.text)


def stream(text: str) -> NotebookNode:
    return nbformat.v4.new_output("stream", name="stdout", text=text)
