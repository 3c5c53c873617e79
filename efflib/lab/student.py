"""`student` in a test: the student's functions by name, wherever they run.

    student.quantize(x, bits=4)             calls the student's function with copies
    student.many("quantize", calls)         the same function many times, in one go
    student.drive(driver, x)                runs a driver beside the student's code

`LocalStudent` calls functions of a notebook, through the same codec as grading does, so that a
check sees exactly what the grader will see.

Functions of the test that are passed as arguments run in the test.  What they raise reaches the
student's code as its kind only, and a failed assertion in them fails the test even where the
student's code catches the exception.
"""

import builtins
import functools
import inspect
import unicodedata
from collections.abc import Callable, Iterable

from efflib.lab import calls
from efflib.lab.codec import CodecError, pack, unpack
from efflib.lab.seeds import seed_all

TEXT_LENGTH = 300
# `pytest.raises(ValueError)` works although the exception was raised elsewhere: builtin kinds keep
# their type.  Not so NotImplementedError, which is what an untouched stub raises: no test that
# expects an error, not even RuntimeError, may take that for an answer.
LEFT_OUT = (NotImplementedError, BaseExceptionGroup)  # a group wants exceptions inside
KEPT = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, LEFT_OUT)
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

    __repr__ = __str__  # in a message the student's own kind stands, not the name of this class


def student_error(info: dict) -> StudentError:
    """The exception for what `calls.describe` said; also a ValueError where kind is that, etc."""
    kind, message, line = (_plain(info.get(key, "")) for key in ("kind", "message", "line"))
    kept = KEPT.get(kind)
    if kept in (None, Exception):
        return StudentError(kind or "Exception", message, line)
    return _combined(kept)(kind, message, line)


def _plain(text: object) -> str:
    """At most 300 characters; control characters, which a terminal would obey, become '?'."""
    text = " ".join(str(text).split())[:TEXT_LENGTH]
    return "".join("?" if unicodedata.category(c)[0] == "C" else c for c in text)


def _combined(kept: type) -> type:
    """A subclass of StudentError and of a builtin exception."""

    def init(self, kind: str, message: str, line: str = "") -> None:
        StudentError.__init__(self, kind, message, line)

    body = {"__init__": init, "__str__": StudentError.__str__, "__module__": __name__}
    body["__repr__"] = StudentError.__repr__
    return type(f"Student{kept.__name__}", (StudentError, kept), body)


@functools.lru_cache(maxsize=256)  # finding the end of a function takes longer than many calls
def source_of(driver: Callable) -> str:
    return inspect.getsource(driver)


class Student:
    """Attributes are callables that run in `_call`; subclasses say where that is."""

    def __getattr__(self, name: str) -> Callable:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._call(name, args, kwargs)

    def many(self, name: str, each: Iterable[tuple[tuple, dict]]) -> list:
        """The values of name(*args, **kwargs) for each (args, kwargs), one after another.

        As so many calls, but that in grading they travel together, which costs less.  So none may
        depend on the value of an earlier one.  The first that raises ends it.
        """
        return self._many(name, [(tuple(args), dict(kwargs)) for args, kwargs in each])

    def drive(self, driver: Callable, *args, **kwargs):
        """Run `driver(student, *args, **kwargs)` beside the student's code, from its source."""
        return self._drive(source_of(driver), driver.__name__, args, kwargs)

    def apart(self, place: str, driver: Callable, *args):
        """Run `driver(nobody, *args)`, in grading where nothing of the student's has run.

        nobody: as `student`, without a single function.  For a text of the student's that was
        found harmless (see efflib.kernel_lab.student_kernel); in a notebook it runs here.
        place: a name; what runs in one place may meet what ran there before, and nothing else.
        """
        return self._apart(place, source_of(driver), driver.__name__, args)

    def _begin(self, seed: int) -> None:
        """A test begins: random numbers that the student's code draws follow from this seed."""

    def _call(self, name: str, args: tuple, kwargs: dict):
        raise NotImplementedError

    def _many(self, name: str, calls: list[tuple[tuple, dict]]) -> list:
        return [self._call(name, args, kwargs) for args, kwargs in calls]

    def _drive(self, source: str, name: str, args: tuple, kwargs: dict):
        raise NotImplementedError

    def _apart(self, place: str, source: str, name: str, args: tuple):
        raise NotImplementedError


class LocalStudent(Student):
    """The functions of a namespace in this process, such as the globals of a notebook."""

    def __init__(self, namespace: dict) -> None:
        self._namespace = namespace

    def _begin(self, seed: int) -> None:
        seed_all(seed)

    def _call(self, name: str, args: tuple, kwargs: dict):
        return _run(lambda a, k: calls.call(self._namespace, name, a, k), args, kwargs)

    def _drive(self, source: str, name: str, args: tuple, kwargs: dict):
        return _run(lambda a, k: calls.drive(self._namespace, source, name, a, k), args, kwargs)

    def _apart(self, place: str, source: str, name: str, args: tuple):
        return _run(lambda a, k: calls.drive({}, source, name, a, k), args, {})


def _run(function: Callable, args: tuple, kwargs: dict):
    """function(args, kwargs) with copies, as if it ran elsewhere; its copied value."""
    lent, failed = [], []
    data = pack([args, kwargs], lent)
    args, kwargs = unpack(data, lambda index, a, k: _called_back(lent[index], a, k, failed))
    try:
        value = function(args, kwargs)
        fault = None
    except KeyboardInterrupt:  # the student has pressed stop
        raise
    except BaseException as raised:  # also SystemExit, or a pytest.skip() of the student's
        fault = raised
    if failed:
        raise failed[0]
    if fault is not None:
        raise student_error(calls.describe(fault)) from None
    try:
        return unpack(pack(value))
    except CodecError as refused:
        raise student_error({"kind": "TypeError", "message": str(refused)}) from None


def _called_back(function: Callable, args: tuple, kwargs: dict, failed: list):
    """The value of a function of the test, for the student's code."""
    calls.room()
    args, kwargs = unpack(pack([args, kwargs]))
    try:
        return unpack(pack(function(*args, **kwargs)))
    except Exception as fault:
        if isinstance(fault, AssertionError) and not isinstance(fault, StudentError):
            failed.append(fault)
        kind = getattr(builtins, getattr(fault, "kind", type(fault).__name__), None)
        known = isinstance(kind, type) and issubclass(kind, Exception)
        raise (kind if known else RuntimeError)("raised by a function of the test") from None
