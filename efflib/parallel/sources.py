"""A notebook's function as text, with all of the notebook that it uses, to run in other processes.

Processes that are started anew (on Windows and macOS all are) can import modules, but not a
notebook.  So a function travels as its source, and with it, found by the names it uses:

- functions and classes of the notebook, as their source, and what these use;
- modules, and what was imported from modules, as imports;
- numbers, texts, dtypes, and lists, tuples and dicts of them, as literals.

Everything else (a model, a tensor) is refused by name: it has to be an argument.
"""

import ast
import builtins
import functools
import importlib.util
import inspect
import linecache
import math
import symtable
import textwrap
import types
from collections.abc import Callable

import torch

PLAIN = (type(None), bool, int, float, str, bytes)


def source_with_needs(function: Callable) -> str:
    """A program that defines `function` and what it needs.

    Raises TypeError for what has no source or cannot travel.
    """
    imports, values, definitions = {}, {}, {}
    _collect(function, function.__globals__, function.__name__, imports, values, definitions)
    head = ["from __future__ import annotations", *imports.values(), *values.values()]
    return "\n".join(head) + "\n\n\n" + "\n\n".join(definitions.values())


def _collect(value, scope: dict, name: str, imports: dict, values: dict, definitions: dict) -> None:
    """Adds what `name` stands for, and what that uses, to the three {name: text}."""
    if name in imports or name in values or name in definitions:
        return
    if isinstance(value, types.ModuleType):
        imports[name] = f"import {value.__name__} as {name}"
        return
    if line := _imported(value, name):
        imports[name] = line
        return
    if isinstance(value, types.FunctionType | type):
        text = _source(value, name)
        definitions[name] = ""  # begun: functions may call each other
        inner = value.__globals__ if isinstance(value, types.FunctionType) else scope
        for used in _names(text):
            if used in inner:
                _collect(inner[used], inner, used, imports, values, definitions)
        del definitions[name]
        definitions[name] = text  # behind what it uses: a class's base, a default
        return
    values[name] = f"{name} = {_literal(value, name)}"


def _imported(value, name: str) -> str | None:
    """The import of what stands in a module that other processes find as well."""
    module, own = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if own is None or module in (None, "__main__", "builtins"):
        return f"{name} = {own}" if own and getattr(builtins, own, None) is value else None
    if isinstance(value, functools.partial):
        return None
    try:
        found = importlib.util.find_spec(module) is not None
        if found and getattr(importlib.import_module(module), own, None) is value:
            return f"from {module} import {own} as {name}"
    except (ImportError, ValueError):
        pass
    return None


def _source(value, name: str) -> str:
    if getattr(value, "__closure__", None):
        raise TypeError(f"{name} uses variables of the function it stands in: define it outside")
    if getattr(value, "__name__", "") == "<lambda>":
        raise TypeError(f"{name} is a lambda: define it with def")
    try:
        return _class_source(value) if isinstance(value, type) else _dedented(value)
    except (OSError, TypeError) as fault:
        raise TypeError(f"the source of {name} is not to be found: {fault}") from None


def _dedented(function: Callable) -> str:
    return textwrap.dedent(inspect.getsource(function))


def _class_source(kind: type) -> str:
    """inspect finds a class by its module's file, which a notebook has not: so by its methods, and
    among the cells that were run, the latest first."""
    methods = [m for m in vars(kind).values() if isinstance(m, types.FunctionType)]
    files = [m.__code__.co_filename for m in methods] + list(reversed(linecache.cache))
    for file in dict.fromkeys(files):
        text = "".join(linecache.getlines(file))
        if f"class {kind.__name__}" not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    raise OSError("no cell defines it")


def _names(text: str) -> list[str]:
    """The names from outside that a piece of code reads: not its own arguments and variables."""
    found: dict[str, None] = {}

    def visit(table: symtable.SymbolTable) -> None:
        outside = table.get_type() == "module"  # of the definition itself: defaults, bases
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (outside or symbol.is_global()):
                found[symbol.get_name()] = None
        for inner in table.get_children():
            visit(inner)

    visit(symtable.symtable(text, "<notebook>", "exec"))
    return list(found)


def _literal(value, name: str) -> str:
    """The text of a plain value."""
    if isinstance(value, torch.dtype):
        return f"__import__('torch').{str(value).removeprefix('torch.')}"
    if type(value) is float and not math.isfinite(value):
        return f"float('{value}')"
    if type(value) in PLAIN:
        return repr(value)
    if type(value) in (list, tuple):
        inner = "".join(f"{_literal(v, name)}, " for v in value)
        return f"[{inner}]" if type(value) is list else f"({inner})"
    if type(value) is dict:
        pairs = (f"{_literal(k, name)}: {_literal(v, name)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    kind = type(value).__name__
    raise TypeError(f"{name} is a {kind} of the notebook: other processes need it as an argument")
