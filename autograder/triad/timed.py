"""Cells and calls of a lab's own variants, within a time limit, in this process."""

import contextlib
import io
import linecache
import signal
from collections.abc import Callable

from efflib.lab.student import LocalStudent

REPEAT_SECONDS = 0.5  # for code that catches the time limit's exception and goes on


class Timeout(BaseException):
    """The time limit of a call; `except Exception` does not catch it."""


def run_cell(source: str, namespace: dict, seconds: float) -> None:
    """Runs a cell; what it raises stays here, as in grading: the tests will see what is missing."""
    name = f"<cell {len(linecache.cache)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            limited(seconds, lambda: exec(compile(source, name, "exec"), namespace))
        except KeyboardInterrupt:
            raise
        except BaseException:
            pass


def limited(seconds: float, work: Callable):
    """work(), which is stopped after that many seconds of CPU time, however busy the machine is."""

    def stop(*_):
        raise Timeout(f"stopped after {seconds:g} s")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, REPEAT_SECONDS)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


class TimedStudent(LocalStudent):
    """The functions of a namespace, each call within a time limit."""

    def __init__(self, namespace: dict, seconds: float) -> None:
        super().__init__(namespace)
        self._seconds = seconds

    def limited_to(self, seconds: float) -> "TimedStudent":
        return TimedStudent(self._namespace, seconds)

    def _call(self, name: str, args: tuple, kwargs: dict):
        call = super()._call
        return limited(self._seconds, lambda: call(name, args, kwargs))

    def _drive(self, source: str, name: str, args: tuple, kwargs: dict):
        drive = super()._drive
        return limited(self._seconds, lambda: drive(source, name, args, kwargs))

    def _apart(self, place: str, source: str, name: str, args: tuple):
        apart = super()._apart
        return limited(self._seconds, lambda: apart(place, source, name, args))
