"""The text of one written question, out of the notebook's cells, and its model answer.

A question is a paragraph that opens with **Question 2.**; it ends at the next question or heading.
What stands around it in the same cell (misconceptions, the section's title, another question) is
left out.  A cell that names no question is taken whole.
"""

import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

MARKS = re.compile(r"^(?:\*\*Question (\d+)\b|#{1,6} )", re.MULTILINE)

SOLUTION = re.compile(r"^### (?:BEGIN|END) SOLUTION[ \t]*$", re.MULTILINE)


def question_of(nb: NotebookNode, grade_id: str) -> str:
    """Markdown of the question that the written cell grade_id ("w2") answers; "" if none stands."""
    at = place_of(nb, grade_id)
    texts = [cell.source for cell in nb.cells[:at] if is_text(cell)]
    number = grade_id.removeprefix("w")
    for text in reversed(texts):
        found = cut_out(text, number)
        if found:
            return found
    before = nb.cells[at - 1] if at else None
    return before.source if before is not None and is_text(before) else ""


def cut_out(text: str, number: str) -> str:
    marks = [*MARKS.finditer(text)]
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    own = [(mark, end) for mark, end in zip(marks, ends, strict=False) if mark[1] == number]
    return "\n\n".join(text[mark.start() : end].strip() for mark, end in own)


def model_answers(source: Path) -> dict[str, str]:
    """grade_id -> model answer, of the lab's source notebook; empty if there is none."""
    return model_answers_of(nbformat.read(source, as_version=4)) if source.is_file() else {}


def model_answers_of(nb: NotebookNode) -> dict[str, str]:
    found = {}
    for cell in nb.cells:
        graded = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "markdown" and graded.get("solution"):
            found[graded["grade_id"]] = SOLUTION.sub("", cell.source).strip()
    return found


def is_text(cell: NotebookNode) -> bool:
    """Text of the release: what students write stands in cells with nbgrader's metadata."""
    return cell.cell_type == "markdown" and "nbgrader" not in cell.metadata


def place_of(nb: NotebookNode, grade_id: str) -> int:
    ids = [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in nb.cells]
    return ids.index(grade_id)
