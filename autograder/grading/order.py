"""What stands around the student's cells so that solutions run as they were meant to.

- Set-up of the release runs before the first cell that comes after it in the release, wherever the
  student moved it; a changed copy runs in its own place, after the released one.
- Definitions in cells that do not run (demonstrations) are taken where a solution refers to them,
  or where they are the solution.
- A module that the set-up imports and a scratch cell overwrites (`torch = 3`) is set back.
"""

import ast
from dataclasses import replace

from autograder.grading.definitions import (
    FUNCTIONS,
    IMPORTED,
    assigned,
    attributes,
    bound,
    is_definition,
    names,
    needed,
    only_definitions,
    statements,
)
from autograder.grading.magics import Reader
from autograder.grading.structure import IMPORTS, Placed, defined, role
from autograder.intake.notebook import Cell, Notebook

MAX_CHARS = 500_000  # of the cells that are searched for definitions
SET_BACK = """\
{statement} as _given
_used = {used!r}
if all(hasattr(_given, _a) for _a in _used):
    if not all(hasattr(globals().get({name!r}), _a) for _a in _used):
        {name} = _given
"""


# ---- set-up -------------------------------------------------------------------------------------


def set_up_first(kept: list[Placed], release: Notebook) -> tuple[list[Placed], list[str]]:
    """Puts released set-up before the first cell that may need it; notes on what was out of place.

    A cell of the student's own needs the imports at the beginning of the release.
    """
    waiting = [cell for cell in release if role(cell) == "setup" and binds(cell)]
    first = next((c.position for c in release if role(c) == "solution"), len(release))
    imports = [c.position for c in waiting if c.position < first and IMPORTS.search(c.source)]
    present = {item.origin.position for item in kept if item.origin}
    result, notes = [], []
    for item in kept:
        due = item.origin.position if item.origin else max(imports, default=0)
        while waiting and waiting[0].position <= due:
            cell = waiting.pop(0)
            if item.origin == cell and item.untouched:
                break
            result.append(released(cell))
            if cell.position not in present:
                notes.append(missing(cell))
            elif item.role == "solution":
                notes.append(below(cell, item, kept))
        result.append(item)
    result += map(released, waiting)
    return result, notes + list(map(missing, waiting))


def binds(cell: Cell) -> bool:
    return bool(IMPORTS.search(cell.source) or defined(cell.source))


def released(cell: Cell) -> Placed:
    return Placed(replace(cell, position=0), cell, restored=True)


def missing(cell: Cell) -> str:
    line = cell.source.strip().split("\n")[0][:60]
    return f"A set-up cell is missing (`{line}`): the released one was run in its place."


def below(cell: Cell, item: Placed, kept: list[Placed]) -> str:
    place = next(i.cell.position for i in kept if i.origin and i.origin.position == cell.position)
    number = item.cell.position
    return f"Cell {place} is set-up for cell {number} and stands below it: it also ran before it."


# ---- definitions of cells that do not run -------------------------------------------------------


def take_definitions(
    kept: list[Placed], others: list[Placed], release: Notebook, read: Reader
) -> tuple[list[Placed], list[str]]:
    """Adds, in their places, definitions of the others that nobody else makes.

    Of these only the ones that solutions refer to or that the release asks for.
    """
    if not others or sum(len(item.cell.source) for item in kept + others) > MAX_CHARS:
        return kept, []
    code = [(item, read(item.cell.source).python) for item in kept + others]
    roots = [n for i, source in code[: len(kept)] if solves(i, release) for n in statements(source)]
    known = [n for _, source in code for n in statements(source) if is_definition(n)]
    empty = {id(item) for item in kept if item.role == "solution" and item.untouched}
    made = set().union(*(bound(source) for i, source in code[: len(kept)] if id(i) not in empty))
    made |= set().union(*(bound(cell.source) for cell in release if role(cell) == "setup"))
    asked = set().union(*(defined(cell.source) for cell in release if role(cell) == "solution"))
    wanted = needed(roots, known, asked - made) - made
    result, notes = list(kept), []
    for item, python in code[len(kept) :]:
        source = only_definitions(python, wanted)
        if not source:
            continue
        number = item.cell.position
        at = next((k for k, i in enumerate(result) if i.cell.position > number), len(result))
        result.insert(at, Placed(replace(item.cell, source=source), None))
        taken = wanted & set().union(*map(names, statements(source)))
        listed = ", ".join(f"`{name}`" for name in sorted(taken))
        notes.append(f"Cell {number} was not run, but your solutions use {listed} from it.")
    return result, notes


def solves(item: Placed, release: Notebook) -> bool:
    """A solution cell, or a cell of the student's own with a function that a template asks for."""
    if item.role != "own":
        return item.role == "solution"
    return bool(solved(item, release))


def solved(item: Placed, release: Notebook) -> str | None:
    """The id of the exercise that a cell works on."""
    if item.role == "solution":
        return item.id
    here = defined(item.cell.source) if item.role == "own" else set()
    templates = (cell for cell in release if role(cell) == "solution")
    return next((cell.grade_id for cell in templates if defined(cell.source) & here), None)


# ---- modules that were overwritten --------------------------------------------------------------


def imported(release: Notebook) -> dict[str, str]:
    """Name -> the import that makes it, without `as`, of all set-up cells."""
    found = {}
    for cell in release:
        for node in statements(cell.source) if role(cell) == "setup" else ():
            for alias in node.names if isinstance(node, IMPORTED) else ():
                one = ast.alias(alias.name)
                if isinstance(node, ast.ImportFrom):
                    plain = ast.ImportFrom(node.module, [one], node.level)
                else:
                    plain = ast.Import([one])
                if alias.name != "*" and (alias.asname or "." not in alias.name):
                    found[alias.asname or alias.name] = ast.unparse(plain)
    return found


def set_back(
    cells: list[tuple[Placed, str]], release: Notebook
) -> tuple[dict[int, str], list[str]]:
    """Index of a cell -> code to run before it (len(cells): at the end), and notes.

    cells: what runs, as Python.  A name is set back only if it lacks an attribute that solutions or
    own functions use of it, and that the imported module has; so a variable of that name that they
    really use stays.
    """
    given, code, notes, lost = imported(release), {}, [], {}
    solutions = [source for item, source in cells if solves(item, release)]
    own = {name for source in solutions for name in bound(source)}
    nodes = [node for source in solutions for node in statements(source)]
    nodes += [n for _, s in cells for n in statements(s) if isinstance(n, FUNCTIONS)]
    for index, (item, source) in enumerate(cells):
        if item.role not in ("solution", "setup"):
            for name in sorted(assigned(source) & given.keys() - own):
                used = sorted(attributes(nodes, name))
                if used:
                    lost[name] = SET_BACK.format(statement=given[name], used=used, name=name)
                    notes.append(
                        f"Cell {item.cell.position} overwrites `{name}`, which the set-up imports: "
                        "solutions that use the imported one get it back."
                    )
        elif lost:
            code[index], lost = "".join(lost.values()), {}
    if lost:
        code[len(cells)] = "".join(lost.values())
    return code, notes
