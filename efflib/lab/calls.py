"""What runs beside the student's code, in a notebook and in the sandbox alike.

It calls a function by name, or runs a driver: a function of a test file, sent as source, that does
there what cannot travel (modules, gradients, training steps) and returns plain values.
"""

import textwrap
import traceback

MESSAGE_LENGTH = 300


class Undefined(NameError):
    """The student's notebook does not define this name."""


def find(namespace: dict, name: str):
    """The student's function of that name. Raises Undefined or TypeError if there is none."""
    if name not in namespace:
        raise Undefined(f"{name} is not defined")
    function = namespace[name]
    if not callable(function):
        raise TypeError(f"{name} is a {type(function).__name__}, not a function")
    return function


def call(namespace: dict, name: str, args: tuple, kwargs: dict):
    """Call the student's function of that name."""
    return find(namespace, name)(*args, **kwargs)


class _Functions:
    """`student` as a driver sees it: attributes are the student's own functions."""

    def __init__(self, namespace: dict) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str):
        return find(self._namespace, name)


def drive(namespace: dict, source: str, name: str, args: tuple, kwargs: dict):
    """Run the function `name` of `source` with the student's functions as its first argument."""
    scope = {"__name__": "driver"}
    exec(compile(textwrap.dedent(source), "<driver>", "exec"), scope)
    return scope[name](_Functions(namespace), *args, **kwargs)


def describe(fault: BaseException) -> dict:
    """{"kind", "message", "line"} of an exception of the student's code; nothing of ours.

    line: the last line of the traceback that stands in a notebook cell, "" if there is none.
    """
    try:
        message = str(fault)[:MESSAGE_LENGTH]
    except Exception:
        message = ""
    line = ""
    for frame in reversed(traceback.extract_tb(fault.__traceback__)):
        if frame.filename.startswith(("<cell", "<ipython")) or "ipykernel" in frame.filename:
            line = f"line {frame.lineno} of {frame.name}: {frame.line or ''}".rstrip(": ")
            break
    return {"kind": type(fault).__name__, "message": message, "line": line[:MESSAGE_LENGTH]}
