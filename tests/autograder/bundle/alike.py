"""How much of one function stands in another, whatever its names are.

A function becomes a line of words, its syntax tree in preorder: kinds of nodes, operators, names of
attributes, numbers, keywords; no other names, no annotations, docstrings and texts.  `share(answer,
other)` is how much of the answer's pieces (runs of RUN words) the other has as well.
"""

import ast
from collections.abc import Iterator

RUN = 10  # words in a piece
LEAST = 20  # words that a function has to have: shorter ones are alike by chance
SKIPPED = (ast.expr_context, ast.arguments, ast.Import, ast.ImportFrom)


def functions(source: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """(name, node) of every function in a piece of code, methods as "Class.method"."""
    yield from _inside(ast.parse(source), "")


def _inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
        name = f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix
        yield from _inside(child, name)


def words(function: ast.FunctionDef) -> list[str]:
    """The body in preorder, without names."""
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return [word for statement in body for word in _words(statement)]


def _words(node: ast.AST) -> Iterator[str]:
    if isinstance(node, SKIPPED):
        return
    if isinstance(node, ast.Raise | ast.Assert):  # what is refused stands on the card
        return
    if isinstance(node, ast.Constant):
        yield "text" if isinstance(node.value, str) else repr(node.value)
        return
    yield type(node).__name__
    for detail in ("attr", "arg"):
        if isinstance(getattr(node, detail, None), str):
            yield getattr(node, detail)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from _words(part)


def pieces(line: list[str]) -> set[tuple[str, ...]]:
    return {tuple(line[i : i + RUN]) for i in range(len(line) - RUN + 1)}


def share(answer: set, other: set) -> float:
    """0 to 1: how many of the answer's pieces the other has."""
    return len(answer & other) / len(answer)
