"""How variants are written down, beside the hidden tests of a lab:

    triad/ex4/right_<name>.py    the exercise solved otherwise; docstring: how
    triad/ex4.diff               what is wrong, one after the other:

    === first_on_top: The first place in the highest bits.
    fails: test_products, test_storage_by_hand
    @@ compress
    -    places = (quads << torch.tensor([0, 2, 4, 6])).sum(-1)
    +    places = (quads << torch.tensor([6, 4, 2, 0])).sum(-1)

Each has a name, the mistake in a sentence, the tests that have to fail, and an edit (edits.py) of
the canonical solution, or of the right variant that a line "of: <name>" names.  Another algorithm,
or a wrapper, is whole: lines with a "+" and nothing else.
"""

import ast
import difflib
import re
from pathlib import Path
from typing import NamedTuple

from autograder.labs.manifest import LabError
from autograder.triad.edits import EditError, edited, new_statements, statements

RIGHT, BEGIN = "right_", "=== "
FAILS, OF = "fails: ", "of: "


class Wrong(NamedTuple):
    """One variant of triad/<exercise>.diff."""

    name: str
    mistake: str
    fails: tuple[str, ...]
    of: str  # a right variant of the exercise, "" for the canonical solution
    edit: str

    @property
    def whole(self) -> str:
        """The text of a variant that is none of another: all lines have a "+"."""
        lines = self.edit.split("\n")
        return "\n".join(x[1:] for x in lines) if all(x[:1] == "+" for x in lines) else ""


class Written(NamedTuple):
    """A variant as a text.

    cell: runs behind the canonical solution; whole: with the rest of what it changed, which may be
    handed in; base: what that is to be compared with.
    """

    cell: str
    whole: str
    base: str
    mistake: str = ""
    fails: tuple[str, ...] = ()
    of: str = ""  # the right variant that base is, "" for the canonical solution


def rights(triad: Path, exercise: str, canonical: str) -> dict[str, Written]:
    """{name: right variant}. Raises LabError for a file of another name."""
    found = {}
    for path in sorted((triad / exercise).glob("*.py")):
        if not path.stem.startswith(RIGHT) or path.stem == RIGHT:
            raise LabError(f"{path}: a right variant is called right_<name>.py; wrong ones are "
                           f"edits in {exercise}.diff")  # fmt: skip
        text = path.read_text(encoding="utf-8")
        how = " ".join((ast.get_docstring(ast.parse(text, str(path))) or "").split())
        found[path.stem.removeprefix(RIGHT)] = Written(text, text, canonical, how)
    return found


def wrongs(triad: Path, exercise: str, canonical: str) -> dict[str, Written]:
    """{name: wrong variant}. Raises LabError for one that cannot be read or does not fit."""
    path, found = triad / f"{exercise}.diff", {}
    if not path.is_file():
        return found
    right = rights(triad, exercise, canonical)
    for wrong in read_edits(path):
        try:
            if wrong.name in found:
                raise EditError("there are two of this name")
            found[wrong.name] = written(wrong, canonical, right)
        except (EditError, SyntaxError) as error:
            raise LabError(f"{path}: {wrong.name}: {error}") from None
    return found


def read_edits(path: Path) -> list[Wrong]:
    """The variants of a file as they are written. Raises LabError."""
    before, *parts = f"\n{path.read_text(encoding='utf-8')}".split(f"\n{BEGIN}")
    if before.strip():
        raise LabError(f"{path}: a variant begins with a line {BEGIN}name: mistake, not {before!r}")
    return [read_edit(path, part.rstrip().split("\n")) for part in parts]


def read_edit(path: Path, lines: list[str]) -> Wrong:
    name, colon, mistake = lines.pop(0).partition(": ")
    if not colon or not re.fullmatch(r"\w+", name):
        raise LabError(f"{path}: a variant begins with {BEGIN}name: mistake, not {name!r}")
    said = {FAILS: "", OF: ""}
    for key in said:
        if lines and lines[0].startswith(key):
            said[key] = lines.pop(0).removeprefix(key).strip()
    fails = tuple(filter(None, said[FAILS].replace(",", " ").split()))
    return Wrong(name, mistake.strip(), fails, said[OF], "\n".join(lines))


def written(wrong: Wrong, canonical: str, right: dict[str, Written]) -> Written:
    """Raises EditError, or SyntaxError for what is no Python then."""
    if wrong.of and wrong.of not in right:
        raise EditError(f"no right variant is called {wrong.of}, only {', '.join(right)}")
    base = right[wrong.of].whole if wrong.of else canonical
    whole = wrong.whole or edited(base, wrong.edit)
    ast.parse(whole)
    # behind the canonical solution only what is new in it has to run
    cell = whole if wrong.whole or wrong.of else new_statements(whole, base)
    return Written(cell, whole, base, *wrong[1:4])


def as_diff(text: Written) -> str:
    """How a variant differs from its base, three lines around; of functions that both have."""
    names = {getattr(node, "name", None) for node in ast.parse(text.whole).body}
    defined = ((one, getattr(ast.parse(one).body[0], "name", "")) for one in statements(text.base))
    base = "\n\n\n".join(one for one, name in defined if name in names)
    lines = base.split("\n"), text.whole.strip("\n").split("\n")
    return "\n".join(list(difflib.unified_diff(*lines, lineterm=""))[2:])
