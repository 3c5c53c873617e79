"""Edits of a text: pieces of a diff without line numbers, each of which fits in one place only.

    @@ compress
         first = groups.abs().argsort(dim=-1)
    -    at = first.sort(dim=-1).values
    +    at = first

Lines begin with " " (there, and stays), "-" (there, and goes) or "+" (new).  A line "@@ name"
begins another piece; its lines are looked for inside of that function, class or method
("Class.method"), or in the whole text where no name stands.
"""

import ast
from dataclasses import dataclass

MARK = "@@"


class EditError(ValueError):
    """An edit that does not fit its text; says which piece, and why."""


@dataclass(frozen=True)
class Piece:
    """old lines -> new lines, inside of a definition ("": anywhere)."""

    where: str
    old: tuple[str, ...]
    new: tuple[str, ...]


def edited(text: str, edit: str) -> str:
    """The text with every piece of the edit in its place. Raises EditError."""
    lines, places = text.split("\n"), []
    for piece in pieces(edit):
        at = place_of(piece, text)
        places.append((at, at + len(piece.old), piece))
    places.sort(key=lambda place: place[:2])
    for (_, end, _), (start, _, piece) in zip(places, places[1:], strict=False):
        if start < end:
            raise EditError(f"two pieces change the same lines:\n{shown(piece)}")
    for start, end, piece in reversed(places):
        lines[start:end] = piece.new
    return "\n".join(lines)


def pieces(edit: str) -> list[Piece]:
    """Raises EditError for an edit without a piece, or one that changes nothing."""
    found: list[tuple[str, list[str]]] = []
    for line in edit.rstrip("\n").split("\n"):
        if line.startswith(MARK):
            found.append((line.removeprefix(MARK).strip(), []))
        else:
            if not found:
                found.append(("", []))
            found[-1][1].append(line)
    return [piece_of(where, lines) for where, lines in found]


def piece_of(where: str, lines: list[str]) -> Piece:
    strange = [line for line in lines if line[:1] not in ("", " ", "-", "+")]
    if strange:
        raise EditError(f"a line begins with a blank, - or +, not: {strange[0]}")
    old = tuple(line[1:] for line in lines if line[:1] != "+")
    new = tuple(line[1:] for line in lines if line[:1] != "-")
    if old == new or not any(old):
        raise EditError(f"a piece says what goes or stays, and changes it, not: {lines}")
    return Piece(where, old, new)


def place_of(piece: Piece, text: str) -> int:
    """Index of the line at which the piece begins in the text. Raises EditError."""
    lines, (first, last) = text.split("\n"), span(piece.where, text)
    size = len(piece.old)
    found = [i for i in range(first, last - size + 1) if tuple(lines[i : i + size]) == piece.old]
    if len(found) != 1:
        room = piece.where or "the text"
        raise EditError(f"stands {len(found)} times in {room}, not once:\n{shown(piece)}")
    return found[0]


def span(where: str, text: str) -> tuple[int, int]:
    """Lines [first, last) of a definition, its decorators included. Raises EditError."""
    if not where:
        return 0, text.count("\n") + 1
    body: list[ast.stmt] = ast.parse(text).body
    for name in where.split("."):
        named = [node for node in body if getattr(node, "name", None) == name]
        if len(named) != 1:
            raise EditError(f"{where} is defined {len(named)} times, not once")
        node, body = named[0], named[0].body
    return first_line(node), node.end_lineno


def first_line(node: ast.stmt) -> int:
    """Index of the first line of a statement, of its decorators if it has any."""
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) - 1


def shown(piece: Piece) -> str:
    return "\n".join(f"    {line}" for line in piece.old)


def new_statements(text: str, base: str) -> str:
    """The statements of a text that do not stand in the base, as they are written."""
    there = set(statements(base))
    return "\n\n\n".join(one for one in statements(text) if one not in there) + "\n"


def statements(text: str) -> list[str]:
    lines = text.split("\n")
    return ["\n".join(lines[first_line(node) : node.end_lineno]) for node in ast.parse(text).body]
