"""What runs beside the student's code, in a notebook and in the sandbox alike.

It calls a function by name, or runs a driver: a function of a test file, sent as source, that does
there what cannot travel (modules, gradients, training steps) and returns plain values.

Each begins with torch's settings as they are after its import, and leaves the caller's: gradients
that one function switches off are not missing in the next exercise.
"""

import builtins
import contextlib
import functools
import linecache
import textwrap
import traceback
import types
from collections.abc import Iterator

import torch

from efflib.lab.unchanged import call_unchanged

MESSAGE_LENGTH = 300
ROOM = 100  # levels of calls, for what runs between a student's function and one of the test
BUILTIN_EXCEPTIONS = {
    kind
    for kind in vars(builtins).values()
    if isinstance(kind, type) and issubclass(kind, BaseException)
}
BASES_OF_ALL = {BaseException, Exception}


class Undefined(NameError):
    """The student's notebook does not define this name."""


def find(namespace: dict, name: str):
    """The student's function of that name. Raises Undefined or TypeError if there is none."""
    if name not in namespace:
        raise Undefined(f"{name} is not defined")
    function = namespace[name]
    if not callable(function):
        raise TypeError(f"{name} is of type {type(function).__name__}, not a function")
    return function


@contextlib.contextmanager
def settings_of_torch() -> Iterator[None]:
    """Gradients on and float32 as the default dtype; afterwards what was before."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(before)


def call(namespace: dict, name: str, args: tuple, kwargs: dict):
    """Call the student's function of that name. Raises ChangedArgument if it changes one."""
    with settings_of_torch():
        return call_unchanged(find(namespace, name), name, args, kwargs)


def room(levels: int = ROOM) -> None:
    """Raises RecursionError if so many levels are not left.

    Else code of ours would meet the end of the stack in the middle of a value, and tell that.
    """
    if levels:
        room(levels - 1)


class _Functions:
    """`student` as a driver sees it: attributes call the student's own functions."""

    def __init__(self, namespace: dict) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str):
        function = find(self._namespace, name)
        return lambda *args, **kwargs: call_unchanged(function, name, args, kwargs)


@functools.lru_cache(maxsize=256)  # several tests run the same driver
def compiled(source: str) -> types.CodeType:
    return compile(textwrap.dedent(source), "<driver>", "exec")


def drive(namespace: dict, source: str, name: str, args: tuple, kwargs: dict):
    """Run the function `name` of `source` with the student's functions as its first argument."""
    scope = {"__name__": "driver"}
    exec(compiled(source), scope)
    with settings_of_torch():
        return scope[name](_Functions(namespace), *args, **kwargs)


def describe(fault: BaseException) -> dict:
    """{"kind", "message", "line"} of an exception of the student's code; nothing of ours.

    kind: the exception's type, or the builtin type that it derives from (LinAlgError is a
    RuntimeError), so that tests can expect it by that name.
    line: "line 3 of quantize: scale = 0" for the innermost line of the student's own code, or "".
    """
    own, kind = type(fault), type(fault)
    if own is not Undefined:
        kind = next((k for k in own.__mro__ if k in BUILTIN_EXCEPTIONS - BASES_OF_ALL), own)
    try:
        message = str(fault)
    except BaseException:  # a __str__ of the student's
        message = ""
    if kind is not own:
        message = f"{own.__name__}: {message}"
    return {
        "kind": kind.__name__[:MESSAGE_LENGTH],
        "message": message[:MESSAGE_LENGTH],
        "line": _students_line(fault)[:MESSAGE_LENGTH],
    }


def _students_line(fault: BaseException) -> str:
    """The student's own code is what has the namespace of `call` as its globals, or is a cell."""
    found, namespace = "", None
    for frame, number in traceback.walk_tb(fault.__traceback__):
        code = frame.f_code
        if code in (call.__code__, drive.__code__):
            namespace = frame.f_locals["namespace"]
        elif frame.f_globals is namespace or code.co_filename.startswith("<cell"):
            text = linecache.getline(code.co_filename, number).strip()
            found = f"line {number} of {code.co_name}: {text}".rstrip(": ")
    return found
