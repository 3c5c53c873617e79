"""The source of a Triton kernel with all it needs, as one module that another process can compile.

A kernel may live in a module, in a notebook cell or in a test, interpreted or compiled, behind
@triton.autotune or not.  Its text, that of the @triton.jit functions it calls, the constants it
names and the imports of the modules it uses are all that Triton allows it to use.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import FunctionType, ModuleType

HEADER = "import triton\nimport triton.language as tl\n"


def python_function(kernel) -> FunctionType:
    """The function behind @triton.jit, @triton.autotune and @triton.heuristics."""
    function = kernel
    while not isinstance(function, FunctionType):
        if not hasattr(function, "fn"):
            raise TypeError(f"not a @triton.jit kernel: {kernel!r}")
        function = function.fn
    return function


def _definition(function: FunctionType) -> str:
    """The text of a function from `def` on."""
    text = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(text).body[0]
    return "\n".join(text.splitlines()[tree.lineno - 1 :])


def _named(text: str) -> set[str]:
    return {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}


def _constant(name: str, value) -> str | None:
    """A line that defines a constant, or None for what is none."""
    import triton.language as tl  # not at the top: see `compiling`

    if isinstance(value, tl.constexpr):
        inner = _constant(name, value.value)
        return inner and f"{name} = tl.constexpr({inner.split(' = ', 1)[1]})"
    if isinstance(value, float):
        return f'{name} = float("{value!r}")'
    if isinstance(value, bool | int | str) or value is None:
        return f"{name} = {value!r}"
    if isinstance(value, tl.dtype):
        return f'{name} = tl.dtype("{value.name}")'
    return None


def _line(name: str, value, parts: dict[FunctionType, str]) -> str:
    """How the module defines one name that a kernel uses; functions go into parts."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    constant = _constant(name, value)
    if constant is not None:
        return constant
    if isinstance(value, type) or not hasattr(value, "fn"):  # part of Triton, or not allowed
        home = getattr(value, "__module__", None) or ""
    else:
        home = python_function(value).__module__ or ""
    if home.split(".")[0] == "triton":
        return f"from {home} import {value.__name__} as {name}"
    if isinstance(value, FunctionType):
        raise TypeError(f"{name} is a function of Python's: write @triton.jit above it")
    function = python_function(value)
    _collect(function, parts)
    return "" if function.__name__ == name else f"{name} = {function.__name__}"


def _collect(function: FunctionType, parts: dict[FunctionType, str]) -> None:
    """Put a function and all it names into parts, {function: text}, what it needs first."""
    if function in parts:
        return
    text = _definition(function)
    parts[function] = ""  # it may call itself through others
    scope = function.__globals__ | inspect.getclosurevars(function).nonlocals
    own = {"triton", "tl", function.__name__, *function.__code__.co_varnames}
    lines = []
    for name in sorted(_named(text) - own):
        if name in scope:
            try:
                lines.append(_line(name, scope[name], parts))
            except TypeError as error:
                raise TypeError(f"{function.__name__} uses {name}: {error}") from None
    body = "\n".join([*filter(None, lines), "", "", "@triton.jit", text, ""])
    parts.pop(function)
    parts[function] = body


def module_source(kernel) -> tuple[str, str]:
    """(text of a module, name of the kernel in it).

    Raises TypeError for what is no kernel, or if it uses something that Triton cannot compile
    either; OSError if there is no source (a function typed at a prompt).
    """
    function = python_function(kernel)
    parts: dict[FunctionType, str] = {}
    _collect(function, parts)
    names = [f.__name__ for f in parts]
    if len(set(names)) < len(names):
        raise TypeError(f"{function.__name__} uses two functions of one name: {sorted(names)}")
    return HEADER + "\n".join(parts.values()), function.__name__


def parameters(kernel) -> dict[str, bool]:
    """{parameter: whether it is a tl.constexpr}, in order."""
    signature = inspect.signature(python_function(kernel))
    return {name: "constexpr" in str(p.annotation) for name, p in signature.parameters.items()}
