"""`student` in a test: the student's functions by name, wherever they run.

    student.quantize(x, bits=4)             calls the student's function with copies
    student.drive(driver, x)                runs a driver beside the student's code

`LocalStudent` calls functions of a notebook, through the same codec as grading does, so that a
check sees exactly what the grader will see.
"""

import builtins
import inspect

from efflib.lab import calls
from efflib.lab.codec import CodecError, pack, unpack

# Builtin exceptions that keep their type, so that `pytest.raises(ValueError)` works in both modes.
KEPT = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and kind not in (OSError, Exception)
}


class StudentError(Exception):
    """The student's code raised, or did not deliver a value.

    kind: name of the exception's type; message: its text; line: the line of the student's code.
    """

    def __init__(self, kind: str, message: str, line: str = "") -> None:
        Exception.__init__(self, f"{kind}: {message}")  # not super(): see _combined
        self.kind, self.message, self.line = kind, message, line

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


def student_error(info: dict) -> StudentError:
    """The exception for what `calls.describe` said; also a ValueError where kind is that, etc."""
    kind, message, line = (str(info.get(key, ""))[:300] for key in ("kind", "message", "line"))
    kept = KEPT.get(kind)
    if kept is None:
        return StudentError(kind or "Error", message, line)
    error = _combined(kept)(kind, message, line)
    return error


def _combined(kept: type) -> type:
    """A subclass of StudentError and of a builtin exception."""

    def init(self, kind: str, message: str, line: str = "") -> None:
        StudentError.__init__(self, kind, message, line)

    body = {"__init__": init, "__str__": StudentError.__str__, "__module__": __name__}
    return type(f"Student{kept.__name__}", (StudentError, kept), body)


class Student:
    """Attributes are callables that run in `_call`; subclasses say where that is."""

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._call(name, args, kwargs)

    def drive(self, driver, *args, **kwargs):
        """Run `driver(student, *args, **kwargs)` beside the student's code, from its source."""
        return self._drive(inspect.getsource(driver), driver.__name__, args, kwargs)

    def _call(self, name: str, args: tuple, kwargs: dict):
        raise NotImplementedError

    def _drive(self, source: str, name: str, args: tuple, kwargs: dict):
        raise NotImplementedError


class LocalStudent(Student):
    """The functions of a namespace in this process, such as the globals of a notebook."""

    def __init__(self, namespace: dict) -> None:
        self._namespace = namespace

    def _call(self, name: str, args: tuple, kwargs: dict):
        return self._run(lambda a, k: calls.call(self._namespace, name, a, k), args, kwargs)

    def _drive(self, source: str, name: str, args: tuple, kwargs: dict):
        return self._run(
            lambda a, k: calls.drive(self._namespace, source, name, a, k), args, kwargs
        )

    def _run(self, function, args: tuple, kwargs: dict):
        args, kwargs = _copy([args, kwargs])
        try:
            value = function(args, kwargs)
        except Exception as fault:
            raise student_error(calls.describe(fault)) from fault
        try:
            return _copy(value)
        except CodecError as fault:
            raise StudentError("TypeError", str(fault)) from None


def _copy(value):
    """The value after a round trip through the codec; functions are passed on as they are."""
    functions = []
    data = pack(value, functions)
    return unpack(data, lambda index, args, kwargs: functions[index](*args, **kwargs))
