"""Part of a module: the definitions that somebody needs, and what these need in turn.

Labs withhold modules that hold their answers, and yet their experiments run on some definitions
there (a trace, a server, a story's constants).  So a withheld module keeps what is named by the
cells of the labs and by modules that are not withheld, and loses everything else.
"""

import ast
import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

PACKAGE = "efflib"
ALL = "*"  # of a module that is passed on as an object: nobody can tell what is used of it
Need = tuple[str, str]  # module, name of a definition in it, or ALL
Sources = dict[str, str]  # {"efflib.quantization.linear": its text}


def read_sources(package: Path) -> Sources:
    """All modules of efflib; a package's __init__ has the name of the package."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = (PACKAGE, *path.relative_to(package).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return found


def needs(tree: ast.AST, modules: Collection[str]) -> set[Need]:
    """The definitions of efflib that a piece of code imports, anywhere in it."""
    found, objects, nodes = set(), {}, list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in modules:
                    objects[alias.asname or alias.name] = whole
                elif node.module in modules:
                    found.add((node.module, alias.name))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in modules and alias.asname:
                    objects[alias.asname] = alias.name
                elif alias.name in modules:
                    found.add((alias.name, ALL))
    return found | attributes(nodes, objects)


@functools.lru_cache(maxsize=256)
def needs_of(code: str, modules: frozenset[str]) -> frozenset[Need]:
    """`needs` of a text. A bundle asks it of every lab more than once."""
    return frozenset(needs(ast.parse(code), modules))


def attributes(nodes: Sequence[ast.AST], objects: dict[str, str]) -> set[Need]:
    """What code takes from modules that it holds under the names of `objects`."""
    found, named = set(), set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            named.add(node.value)
            if node.value.id in objects:
                found.add((objects[node.value.id], node.attr))
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in objects and node not in named:
            found.add((objects[node.id], ALL))
    return found


def closure(roots: Iterable[Need], sources: Sources, withheld: Collection[str]) -> dict[str, set]:
    """{withheld module: names of the definitions to keep}, with all that they need in turn."""
    kept: dict[str, set[str]] = {}
    waiting = list(roots)
    while waiting:
        module, name = waiting.pop()
        if module not in withheld or name in kept.setdefault(module, set()):
            continue
        kept[module].add(name)
        tree = ast.parse(sources[module])
        chosen = ast.Module(chosen_statements(tree, kept[module]), [])
        waiting += needs(chosen, sources.keys())
    return {module: names for module, names in kept.items() if names}


def chosen_statements(tree: ast.Module, names: Collection[str]) -> list[ast.stmt]:
    """The top-level statements that bind these names, and those that they use, in their order."""
    if ALL in names:
        return tree.body
    chosen = {i for i, s in enumerate(tree.body) if getattr(s, "module", "") == "__future__"}
    wanted = set(names).union(*(bound(tree.body[i]) for i in chosen))
    while True:
        more = {i for i, s in enumerate(tree.body) if i not in chosen and bound(s) & wanted}
        if not more:
            return [trimmed(tree.body[i], wanted) for i in sorted(chosen)]
        chosen |= more
        for i in more:
            if not isinstance(tree.body[i], ast.Import | ast.ImportFrom):
                wanted |= {n.id for n in ast.walk(tree.body[i]) if isinstance(n, ast.Name)}


def bound(statement: ast.stmt) -> set[str]:
    """Names that a statement gives to its module."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {a.asname or a.name.partition(".")[0] for a in statement.names}
    inside = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
    return {n.id for n in inside if isinstance(n.ctx, ast.Store)}


def trimmed(statement: ast.stmt, wanted: set[str]) -> ast.stmt:
    """An import without the names that nobody needs; any other statement as it is."""
    if not isinstance(statement, ast.Import | ast.ImportFrom):
        return statement
    names = [a for a in statement.names if (a.asname or a.name.partition(".")[0]) in wanted]
    short = type(statement)(**{**dict(ast.iter_fields(statement)), "names": names})
    return ast.copy_location(short, statement)


def part_text(source: str, names: Collection[str]) -> str:
    """The text of these definitions, with the comments above them, without the module's words."""
    if ALL in names:
        return source
    lines = source.splitlines()
    pieces = []
    for statement in chosen_statements(ast.parse(source), names):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            pieces.append(ast.unparse(statement))
        else:
            pieces.append("\n".join(lines[first_line(statement, lines) : statement.end_lineno]))
    return "\n".join(spaced(pieces))


def first_line(statement: ast.stmt, lines: list[str]) -> int:
    """Where a statement begins (from 0), with its decorators and the comments right above it."""
    starts = [d.lineno for d in getattr(statement, "decorator_list", ())] + [statement.lineno]
    first = min(starts) - 1
    while first > 0 and lines[first - 1].startswith("#"):
        first -= 1
    return first


def spaced(pieces: list[str]) -> Iterator[str]:
    """Two empty lines around functions and classes, as the course writes them."""
    for before, piece in zip(["", *pieces], pieces, strict=False):
        block = any("\n" in text for text in (before, piece))
        yield f"\n\n{piece}" if block else piece
