"""What code binds, uses and defines, read from its text without running it.

Text that is no Python binds nothing and defines nothing.
"""

import ast
import functools
import symtable
import warnings
from collections.abc import Iterable

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTED = (ast.Import, ast.ImportFrom)
RUNS = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom)  # what a constant's value may not do
TOO_STRANGE = (SyntaxError, ValueError, RecursionError, MemoryError)
KEPT = 500  # cells and statements of a notebook: each is asked for several times


@functools.lru_cache(maxsize=KEPT)
def statements(source: str) -> tuple[ast.stmt, ...]:
    """The top-level statements of a cell, none if it does not parse. They are not to be changed."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tuple(compile(source, "<cell>", "exec", flags=flags, dont_inherit=True).body)
    except TOO_STRANGE:
        return ()


def assigned(source: str) -> set[str]:
    """Names of the namespace that a cell changes other than by import, def, class or lambda."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tables = [symtable.symtable(source, "<cell>", "exec")]
    except TOO_STRANGE:
        return set()
    found = set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            here = table.get_type() == "module" or symbol.is_declared_global()
            made = symbol.is_imported() or symbol.is_namespace()
            if here and symbol.is_assigned() and not made:
                found.add(symbol.get_name())
    return found - {name for node in statements(source) if is_lambda(node) for name in names(node)}


def names(node: ast.stmt) -> set[str]:
    """Names that a top-level statement defines: def, class, import, `name = ...`."""
    if isinstance(node, FUNCTIONS):
        return {node.name}
    if isinstance(node, IMPORTED):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return set()
    nodes = (part for target in targets for part in ast.walk(target))
    return {part.id for part in nodes if isinstance(part, ast.Name)}


def bound(source: str) -> set[str]:
    """Names that a cell binds in any way."""
    return assigned(source).union(*map(names, statements(source)))


def is_lambda(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Lambda)


def is_definition(node: ast.stmt) -> bool:
    """def, class, import, and constants: assignments that call nothing."""
    if isinstance(node, (*FUNCTIONS, *IMPORTED)) or is_lambda(node):
        return True
    constant = isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
    return constant and not any(isinstance(part, RUNS) for part in ast.walk(node))


@functools.lru_cache(maxsize=KEPT)
def used(node: ast.AST) -> frozenset[str]:
    """Names that code reads from outside itself, also inside its functions: no local variables."""
    return globals_of(symtable.symtable(ast.unparse(node), "cell", "exec"))


def globals_of(table: symtable.SymbolTable) -> frozenset[str]:
    """Names that a block and the blocks inside it look up in the notebook's namespace."""
    outer = table.get_type() == "module"
    own = (s for s in table.get_symbols() if s.is_referenced() and (outer or s.is_global()))
    return frozenset(s.get_name() for s in own).union(*map(globals_of, table.get_children()))


def attributes(nodes: Iterable[ast.AST], name: str) -> set[str]:
    """The x of every `name.x`."""
    return {
        part.attr
        for node in nodes
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.value.id == name
    }


def only_definitions(source: str, wanted: set[str] | None = None) -> str:
    """The definitions of a cell, as code without the rest; wanted: of these names only."""
    chosen = [
        node
        for node in statements(source)
        if is_definition(node) and (wanted is None or names(node) & wanted)
    ]
    try:
        return "\n".join(map(ast.unparse, chosen))
    except TOO_STRANGE:
        return ""


def first_line(node: ast.stmt) -> int:
    """Where a statement begins, with its decorators."""
    return min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", ()))])


def unless_there(node: ast.stmt) -> str:
    """Code of a definition; a constant keeps the value that it has already, if it has one."""
    text = ast.unparse(node)
    if isinstance(node, (*FUNCTIONS, *IMPORTED)) or is_lambda(node):
        return text
    own = ", ".join(map(repr, sorted(names(node))))
    return f"if not {{{own}}} <= globals().keys():\n    {text}" if own else ""


def needed(
    roots: Iterable[ast.AST], definitions: Iterable[ast.stmt], asked: Iterable[str] = ()
) -> set[str]:
    """Names that are asked for or that code refers to, also through what it refers to."""
    by_name: dict[str, list[ast.stmt]] = {}
    for node in definitions:
        for name in names(node):
            by_name.setdefault(name, []).append(node)
    found: set[str] = set()
    new = set(asked).union(*map(used, roots))
    while new:
        found |= new
        parts = (node for name in new for node in by_name.get(name, ()))
        new = set().union(*map(used, parts)) - found
    return found
