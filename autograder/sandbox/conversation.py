"""Requests to a worker and its answers, with calls back into the grader in between.

    request   {"nonce", "seconds", "wall", "op": "hello" | "cell" | "call" | "many" | "drive", ...}
    answer    {"nonce", "ok": value} | {"nonce", "error": {"kind", "message", "line"}}
    callback  {"nonce", "callback": index, "args", "kwargs"}       asked before the answer
    reply     {"nonce", "op": "reply", "ok": value} | {..., "error": kind}

seconds: of CPU time, wall: of time that passes, after which the worker stops what it runs.

Every request has a random nonce. What does not fit raises WireError; then the worker is of no use
any more, since the next answer could not be told from a late one.
"""

import os
import traceback
from collections.abc import Callable

from autograder.sandbox.clock import WALL_FACTOR, Meter
from autograder.sandbox.wire import MAX_FRAME, Channel, WireError
from efflib.lab.codec import CodecError, pack, unpack
from efflib.lab.student import StudentError, student_error

GRACE_SECONDS = 2.0  # the worker stops itself at its limit; later than this it is killed
MAX_CALLBACKS = 20_000
MAX_NESTED = 16
MAX_GIVEN = 8 * 2**20  # bytes that functions of the test are given: what they keep stays here
TEXT_CHARS = 300  # of one part of an error
OURS = ("Killed", "Exit", "MemoryLimit", "Protocol")  # kinds of ends, which no worker reports


class Exchange:
    """Requests that are open: usually one, more where a function of the test calls the student."""

    def __init__(self, channel: Channel, cpu: Callable[[], float] = lambda: 0.0) -> None:
        """cpu: the CPU seconds that the worker's sandbox has used."""
        self._channel, self._cpu, self._callbacks, self._given = channel, cpu, 0, 0
        self._open: dict[bytes, list[Callable]] = {}  # nonce -> functions lent with the request

    def ask(self, request: dict, seconds: float, times: int = 1):
        """The worker's value. Raises StudentError for the student's fault, WireError, CodecError.

        times: as often may the worker take `seconds`, which it counts for each part of a request.
        A function of the test that failed an assertion fails the request with it.
        """
        if len(self._open) >= MAX_NESTED:
            raise StudentError("RecursionError", f"calls nested {MAX_NESTED} deep")
        nonce, functions, failed = os.urandom(16), [], []
        meter = Meter(times * seconds + GRACE_SECONDS, self._cpu)
        limits = {"seconds": float(seconds), "wall": float(WALL_FACTOR * seconds)}
        frame = pack(request | {"nonce": nonce} | limits, functions)
        if not self._open:
            self._channel.check_quiet()
            self._callbacks = self._given = 0
        self._open[nonce] = functions
        try:
            self._channel.send(frame, meter)
            while "callback" in (answer := self._receive(meter)):
                self._channel.send(self._called_back(answer, failed), meter)
        finally:
            del self._open[nonce]
        if answer["nonce"] != nonce:
            raise WireError("protocol", "it answered another request")
        if failed:
            raise failed[0]
        if "error" in answer:
            raise reported(answer["error"])
        if "ok" not in answer:
            raise WireError("protocol", "it answered without a value")
        return answer["ok"]

    def _receive(self, meter: Meter) -> dict:
        frame = self._channel.receive(meter)
        try:
            answer = unpack(frame)
        except CodecError as fault:
            raise WireError("protocol", f"it sent {fault}") from None
        if type(answer) is not dict or type(answer.get("nonce")) is not bytes:
            raise WireError("protocol", "it sent something that is no answer")
        self._given += len(frame) if "callback" in answer else 0
        return answer

    def _called_back(self, answer: dict, failed: list[AssertionError]) -> bytes:
        """Runs a function of the test for the student's code; the frame with what it returned.

        What it raises reaches the student as its kind only: the text may hold what is expected.
        The first failed assertion is kept, since student code may catch the exception and go on;
        without the values of its frames, which are the student's.
        """
        self._callbacks += 1
        if self._callbacks > MAX_CALLBACKS:
            raise WireError("protocol", f"it called a function more than {MAX_CALLBACKS} times")
        if self._given > MAX_GIVEN:
            raise WireError("protocol", f"it gave functions of the test over {MAX_GIVEN} bytes")
        function, args, kwargs = self._lent(answer)
        reply = {"nonce": answer["nonce"], "op": "reply"}
        try:
            frame = pack(reply | {"ok": function(*args, **kwargs)})
            if len(frame) <= MAX_FRAME:
                return frame
            kind = "MemoryError"
        except StudentError as fault:
            if getattr(fault, "fatal", False):  # the sandbox died in a call inside this function
                raise
            kind = fault.kind
        except Exception as fault:
            if isinstance(fault, AssertionError) and not failed:
                traceback.clear_frames(fault.__traceback__)
                failed.append(fault.with_traceback(fault.__traceback__.tb_next))
            kind = type(fault).__name__
        return pack(reply | {"error": kind})

    def _lent(self, answer: dict) -> tuple[Callable, tuple, dict]:
        index, args, kwargs = (answer.get(key) for key in ("callback", "args", "kwargs"))
        lent = self._open.get(answer["nonce"], [])
        plain = type(index) is int and type(args) is tuple and type(kwargs) is dict
        if not plain or not 0 <= index < len(lent) or any(type(key) is not str for key in kwargs):
            raise WireError("protocol", "it called a function that it was not given")
        return lent[index], args, kwargs


def reported(info: object) -> StudentError:
    """The exception for an error that the worker reported, whatever it wrote there."""
    if type(info) is not dict:
        raise WireError("protocol", "it sent an error without a description")
    parts = (info.get(key) for key in ("kind", "message", "line"))
    kind, message, line = (part[:TEXT_CHARS] if type(part) is str else "" for part in parts)
    kind = kind if kind.isidentifier() and kind.isascii() and kind not in OURS else "Exception"
    try:
        return student_error({"kind": kind, "message": message, "line": line})
    except Exception:  # a builtin exception that is made from other arguments
        return StudentError(kind, message, line)
