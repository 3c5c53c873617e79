"""From a student's notebook to the code that grading runs.

All code cells run, in the order of the notebook, except
- checks, demonstrations and written answers (what is one, the release says),
- the untouched template of an exercise that another cell solves.
A cell that was split in the middle of a function is joined again (joining.py); released set-up runs
before what needs it, definitions count wherever they stand (order.py).  Every such step leaves a
note, a sentence for the student.
"""

import ast
from collections import Counter
from dataclasses import dataclass

from autograder.grading.definitions import (
    TOO_STRANGE,
    first_line,
    is_definition,
    statements,
    unless_there,
)
from autograder.grading.joining import join_split_cells
from autograder.grading.magics import Reader, syntax_error
from autograder.grading.order import (
    MAX_CHARS,
    set_back,
    set_up_first,
    solved,
    take_definitions,
)
from autograder.grading.structure import (
    DEMO_TAGS,
    Placed,
    collect_answers,
    defined,
    exercise_name,
    match_cells,
    structure_notes,
)
from autograder.grading.written import find_written
from autograder.intake.notebook import Notebook

LAB_CALLS = {"check", "hint", "report"}
MAX_CHECK_CHARS = 1_000
MAX_COPIES = 3  # cells of one exercise that have the time of a solution: the last ones
SET_BACK_LABEL = "set-up, repeated"
TOO_MUCH = "There is more to read than grading reads, so some cells were left as they are."


@dataclass(frozen=True)
class CellSource:
    """Code to run, where it comes from ("cell 7, ex2"), and what it is.

    kind: "solution", "setup" or "own" (everything else: it draws on the time for own cells);
    definitions: what of it is run where the whole raised, was stopped or found no time, each with
    the line of the source at which it begins.
    """

    label: str
    source: str
    kind: str = "own"
    definitions: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Rebuilt:
    cells: tuple[CellSource, ...]
    answers: dict[str, str]  # grade_id -> what the student wrote there
    notes: tuple[str, ...]
    look: dict[str, str]  # grade_id of a written question -> why a person should look there


def rebuild(submission: Notebook, release: Notebook) -> Rebuilt:
    """Code, answers and notes of a submission (see the top of this file)."""
    placed, read = match_cells(submission, release), Reader()
    written = find_written(placed, release)
    answers = collect_answers(placed, release)
    answers |= {name: found.text for name, found in written.items()}
    kept, others, left_out = to_run(placed)
    kept, templates = drop_templates(kept)
    kept, joins = join_split_cells(kept, read)
    kept, taken = take_definitions(kept, others, release, read)
    kept, more = drop_templates(kept)
    repeated = copies(kept)
    kept, moved = set_up_first(kept, release)
    notes = structure_notes(placed, answers, release) + moved + left_out + taken
    notes += templates + more + joins + repeated
    for item in kept:
        remarks = read(item.cell.source).notes
        notes += [f"Cell {item.cell.position}: {remark}." for remark in remarks]
    back, overwritten = set_back([(i, read(i.cell.source).python) for i in kept], release)
    notes += overwritten + [TOO_MUCH] * (read.left <= 0)
    cells = cell_sources(kept, back, read, release)
    look = {name: found.look for name, found in written.items() if found.look}
    return Rebuilt(tuple(cells), answers, tuple(dict.fromkeys(notes)), look)


def cell_sources(
    kept: list[Placed], back: dict[int, str], read: Reader, release: Notebook
) -> list[CellSource]:
    """What runs, in this order; back: code that sets names back, by the index it runs before."""
    small = sum(len(item.cell.source) for item in kept) <= MAX_CHARS
    cells, kinds = [], kinds_of(kept, release)
    for index, (item, kind) in enumerate(zip(kept, kinds, strict=True)):
        if index in back:
            cells.append(CellSource(SET_BACK_LABEL, back[index], "setup"))
        python = read(item.cell.source).python
        definitions = spare(python) if small else ()
        cells.append(CellSource(label(item), python, kind, definitions))
    if len(kept) in back:
        cells.append(CellSource(SET_BACK_LABEL, back[len(kept)], "setup"))
    return cells


def kinds_of(kept: list[Placed], release: Notebook) -> list[str]:
    """The kind of each cell. Of many copies of a solution only the last ones count as such."""
    counts: Counter = Counter()
    kinds = []
    for item in reversed(kept):
        exercise = solved(item, release)
        setup = item.role == "setup"
        counts[name := exercise or (item.origin.position if setup else None)] += 1
        own = name is None or counts[name] > MAX_COPIES
        kinds.append("own" if own else "setup" if setup else "solution")
    return kinds[::-1]


def spare(python: str) -> tuple[tuple[int, str], ...]:
    """The definitions of a cell of several statements; constants where they are missing."""
    nodes = statements(python)
    chosen = [node for node in nodes if is_definition(node)] if len(nodes) > 1 else []
    try:
        return tuple((first_line(node), unless_there(node)) for node in chosen)
    except TOO_STRANGE:
        return ()


def label(item: Placed) -> str:
    where = "set-up cell" if item.restored else f"cell {item.cell.position}"
    return f"{where}, {item.id}" if item.id else where


def to_run(placed: list[Placed]) -> tuple[list[Placed], list[Placed], list[str]]:
    """(code cells that run, demonstrations, a note on each that one might expect to run)."""
    kept, others, notes = [], [], []
    for item in placed:
        if item.cell.kind == "code":
            runs, note = decide(item)
            kept += [item] if runs else []
            others += [item] if not runs and item.role in ("demo", "own") else []
            notes += [f"Cell {item.cell.position} {note}."] if note else []
    return kept, others, notes


def decide(item: Placed) -> tuple[bool, str]:
    """(does this code cell run?, what to say about it or "")."""
    if item.role == "solution":
        return True, ""
    if item.role == "written":
        return False, "is a written answer: it was not run"
    if item.untouched and item.role == "check" or bare_check(item.cell.source):
        return False, ""
    if item.role == "check":
        return True, "is a check with other code in it: that code was run as well"
    if item.role == "demo":
        note = "" if item.untouched else "is a demonstration, which you changed: it was not run"
        return False, note
    if item.role == "own" and DEMO_TAGS & set(item.cell.tags):
        return False, "is tagged as a demonstration: it was not run"
    return True, ""


def bare_check(source: str) -> bool:
    """Nothing but `lab.check(...)`, `lab.hint(...)` or `lab.report()`."""
    if len(source) > MAX_CHECK_CHARS or syntax_error(source) is not None:
        return False
    body = ast.parse(source).body
    return bool(body) and all(
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and isinstance(node.value.func.value, ast.Name)
        and node.value.func.value.id == "lab"
        and node.value.func.attr in LAB_CALLS
        for node in body
    )


def drop_templates(kept: list[Placed]) -> tuple[list[Placed], list[str]]:
    """An untouched template must not undo a solution that stands in another cell."""
    solved = set().union(*(defined(item.cell.source) for item in kept if not item.untouched))
    result, notes = [], []
    for item in kept:
        names = defined(item.cell.source)
        template = item.role == "solution" and item.untouched
        if not (template and names and names <= solved):
            result.append(item)
            continue
        notes.append(
            f"The empty template of {exercise_name(item.id)} (cell {item.cell.position}) was left "
            "out, because another cell defines the same names."
        )
    return result, notes


def copies(kept: list[Placed]) -> list[str]:
    counts = Counter(item.id for item in kept if item.role == "solution" and item.id)
    notes = []
    for grade_id in (name for name, count in counts.items() if count > 1):
        numbers = " and ".join(str(item.cell.position) for item in kept if item.id == grade_id)
        name = exercise_name(grade_id)
        notes.append(f"Cells {numbers} are copies of {name}: both ran, the last definition counts.")
    return notes
