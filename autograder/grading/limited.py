"""A student whose calls share one time: of the tests of a submission, or of its board."""

import time

from efflib.lab.student import Student, StudentError


class TimedStudent(Student):
    """Passes calls on, until the time of the whole submission is up."""

    def __init__(self, inner: Student, end: float) -> None:
        self._inner, self._end = inner, end

    def limited_to(self, seconds: float) -> "TimedStudent":
        own = getattr(type(self._inner), "limited_to", None)
        return TimedStudent(own(self._inner, seconds), self._end) if own else self

    def _begin(self, seed: int) -> None:
        self._inner._begin(seed)

    def _call(self, name: str, args: tuple, kwargs: dict) -> object:
        self._check()
        return self._inner._call(name, args, kwargs)

    def _many(self, name: str, calls: list[tuple[tuple, dict]]) -> list:
        self._check()
        return self._inner._many(name, calls)

    def _drive(self, source: str, name: str, args: tuple, kwargs: dict) -> object:
        self._check()
        return self._inner._drive(source, name, args, kwargs)

    def _apart(self, place: str, source: str, name: str, args: tuple) -> object:
        self._check()
        return self._inner._apart(place, source, name, args)

    def _check(self) -> None:
        if time.monotonic() > self._end:
            raise StudentError("Timeout", "the time for the whole submission was used up")
