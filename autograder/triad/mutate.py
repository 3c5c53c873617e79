"""Mechanical mutants of a function: every small slip that the syntax tree allows.

`mutations(node)` yields (what was done, the node that takes its place) for one node of a tree;
`mutants_of(source)` applies each of them to each node of a solution, one at a time.
"""

import ast
import copy
from collections.abc import Iterator

from autograder.triad.slips import EXPRESSIONS
from autograder.triad.slips_of_statements import STATEMENTS

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
Mutation = tuple[str, ast.AST]


def mutants_of(source: str) -> Iterator[tuple[str, str, int, str]]:
    """(function, what was done, line, source of the mutant) of a solution cell, without repeats.

    line: counted from the first line of the solution.  What students are given (signatures, help,
    lines outside the markers) stays as it is.
    """
    tree = ast.parse(source)
    lines = solution_lines(source)
    original = ast.dump(tree)
    seen = {original}
    nodes = list(ast.walk(tree))
    names = enclosing_functions(tree)
    for index, node in enumerate(nodes):
        first = lines.get(getattr(node, "lineno", None))
        if first is None or id(node) not in names:
            continue
        for what, new in mutations(node):
            mutant = with_node(tree, index, new)
            text = compilable(mutant)
            if text is None or (form := ast.dump(ast.parse(text))) in seen:
                continue
            seen.add(form)
            yield names[id(node)], what, node.lineno - first + 1, text


def mutations(node: ast.AST) -> Iterator[Mutation]:
    """Every slip at this node; the new nodes share no part with the tree."""
    table = STATEMENTS if isinstance(node, ast.stmt) else EXPRESSIONS
    for kind, slip in table:
        if isinstance(node, kind):
            for what, new in slip(copy.deepcopy(node)):
                yield what, copy.deepcopy(new)


def with_node(tree: ast.Module, index: int, new: ast.AST) -> ast.Module:
    """A copy of the tree in which the node that ast.walk meets at this index is another."""
    made = copy.deepcopy(tree)
    old = list(ast.walk(made))[index]
    for parent in ast.walk(made):
        for field, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, field, new)
            elif isinstance(value, list) and any(item is old for item in value):
                value[:] = [new if item is old else item for item in value]
    return ast.fix_missing_locations(made)


def compilable(tree: ast.Module) -> str | None:
    """The source of a tree, None if it is no program."""
    try:
        text = ast.unparse(tree)
        compile(text, "<mutant>", "exec")
    except (SyntaxError, ValueError):
        return None
    return text


def solution_lines(source: str) -> dict[int, int]:
    """Line -> first line of its solution, for all lines between markers (or of a cell without)."""
    lines = source.split("\n")
    if not any(line.strip() == BEGIN for line in lines):
        return dict.fromkeys(range(1, len(lines) + 1), 1)
    found, first = {}, None
    for number, line in enumerate(lines, start=1):
        if line.strip() == BEGIN:
            first = number + 1
        elif line.strip() == END:
            first = None
        elif first is not None:
            found[number] = first
    return found


def enclosing_functions(tree: ast.Module) -> dict[int, str]:
    """id of each node that may change -> name of the function in whose body it stands.

    Left out are docstrings, signatures of inner functions, and what an error says.
    """
    names: dict[int, str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            for part in statement.body:
                names |= {id(node): statement.name for node in ast.walk(part)}
    for node in ast.walk(tree):
        left_out = []
        if isinstance(node, ast.Raise):
            left_out = [node.exc, node.cause]
        elif isinstance(node, ast.FunctionDef):
            left_out = [node.args, node.returns, *node.decorator_list]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out = [node]
        for part in filter(None, left_out):
            for inner in ast.walk(part):
                names.pop(id(inner), None)
    return names
