"""The grader's side of a sandbox: runs cells and calls functions, and survives what comes back.

    with Session(spec) as session:
        session.run_cell("def double(x): return 2 * x")
        session.call("double", (21,), {})                  # 42

A session is one sandbox; remote.py makes a notebook of it.
"""

import contextlib
from dataclasses import dataclass, replace

from autograder.sandbox import launch, process, warm
from autograder.sandbox.clock import Meter
from autograder.sandbox.conversation import Exchange, reported
from autograder.sandbox.launch import SandboxSpec
from autograder.sandbox.wire import Channel, WireError
from efflib.lab.codec import CodecError
from efflib.lab.student import StudentError

START_SECONDS = 60.0  # of computing, for the start of Python and torch
STDOUT_CHARS = 10_000
STARTS = 3  # of one session, if it is killed before it is ready
END_SECONDS = 5.0  # for the end of a sandbox whose worker has closed its pipe
KILLED = "Killed"
KINDS = {"late": "Timeout", "closed": "Exit", "protocol": "Protocol"}


class SandboxDied(StudentError):
    """Student code ended, blocked or spoilt its sandbox.

    kind: "Timeout", "MemoryLimit", "Exit" or "Protocol"; reason: a sentence.  Kind "Killed": by a
    signal. The student's code can do that to itself, but so can a machine without memory.
    """

    fatal = True

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.reason = reason


@dataclass(frozen=True)
class CellReport:
    """What a cell did. error: None, or what it raised; stdout: its first 10 000 characters.

    line: at which it ended, as the worker says; the statements above are done.
    """

    error: str | None
    stdout: str
    seconds: float  # what it cost: CPU time, or a tenth of its time where that is more
    line: int = 0


class Session:
    """One sandbox. It starts at once and gets ready in the background, so make it ahead of need."""

    def __init__(self, spec: SandboxSpec) -> None:
        """Raises SandboxUnavailable."""
        self.spec, self._ready = spec, False
        self._start(spec)

    def _start(self, spec: SandboxSpec) -> None:
        self._process = warm.start(spec)
        self._channel = Channel(self._process.read_fd, self._process.write_fd)
        self._exchange = Exchange(self._channel, self._process.cpu_seconds)
        self._dead: tuple[str, str] | None = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def meter(self) -> Meter:
        """Measures what student code costs from now on. Raises SandboxDied."""
        self._get_ready()
        return Meter(0.0, self._process.cpu_seconds)

    def close(self) -> None:
        """Kills everything inside; returns when it is gone."""
        self._die("Exit", "the sandbox was closed")

    def run_cell(self, source: str, seconds: float = 10.0) -> CellReport:
        """Runs a cell; what it raises is in the report. Raises SandboxDied."""
        meter, line = self.meter(), 0
        try:
            value = self._ask({"op": "cell", "source": source}, seconds)
            error, stdout = value["error"], value["stdout"][:STDOUT_CHARS] + ""
            fault = None if error is None else reported(error)
            line = value["line"] if type(value["line"]) is int else 0
        except SandboxDied:
            raise
        except (StudentError, CodecError) as stopped:  # CodecError: the cell is no text
            fault, stdout = stopped, ""
        except (TypeError, KeyError, WireError):
            raise self._die("Protocol", "it answered a cell with something else") from None
        # stopped inside by a clock that may be some milliseconds ahead of the one outside
        least = seconds if getattr(fault, "kind", "") == "Timeout" else 0.0
        return CellReport(sentence(fault), stdout, max(meter.cost(), least), line)

    def call(self, name: str, args=(), kwargs=None, seconds: float = 10.0, seed: int = 0):
        """The value of the student's function. Raises StudentError, SandboxDied.

        seed: of the random numbers that it draws.
        """
        request = {"op": "call", "name": name, "args": tuple(args), "kwargs": kwargs or {}}
        return self._ask(request | {"seed": seed}, seconds)

    def many(self, name: str, calls: list[tuple], seconds: float = 10.0) -> list:
        """The values of the calls (args, kwargs, seed). Raises StudentError, SandboxDied.

        seconds: of each call; the first that raises ends it.
        """
        values = self._ask({"op": "many", "name": name, "calls": calls}, seconds, len(calls))
        if type(values) is not list or len(values) != len(calls):
            raise self._die("Protocol", "it answered calls with something else")
        return values

    def drive(self, source: str, name: str, args=(), kwargs=None, seconds=10.0, seed: int = 0):
        """The value of the driver `name` of `source`. Raises StudentError, SandboxDied."""
        request = {"op": "drive", "source": source, "name": name, "seed": seed}
        return self._ask(request | {"args": tuple(args), "kwargs": kwargs or {}}, seconds)

    def _ask(self, request: dict, seconds: float, times: int = 1):
        self._get_ready()
        try:
            return self._exchange.ask(request, seconds, times)
        except WireError as fault:
            text = f"stopped after {seconds:g} s" if fault.kind == "late" else str(fault)
            grace = END_SECONDS if fault.kind == "closed" else 0.0
            raise self._die(KINDS[fault.kind], text, grace) from None
        except (StudentError, AssertionError, CodecError):
            raise
        except BaseException:  # Ctrl-C in the middle of an answer: the next one could not be told
            self.close()
            raise

    def _get_ready(self) -> None:
        """Waits until torch is imported. Raises SandboxUnavailable, SandboxDied.

        Nothing of the student's has run by then: a sandbox that is killed is started again, at last
        from nothing, so that a zygote that is about to end takes it along but once.
        """
        if self._dead is not None:
            raise SandboxDied(*self._dead)
        for left in reversed(range(STARTS)):
            if self._ready:
                return
            with contextlib.suppress(WireError):
                self._process.attach()
                self._ready = self._exchange.ask({"op": "hello"}, START_SECONDS) == "ready"
            if not self._ready:
                kind = self._die("Exit", "it did not start", END_SECONDS).kind
                if kind != KILLED or not left:
                    raise launch.start_failure(self.spec, kind, self._process.errors)
                self._start(self.spec if left > 1 else replace(self.spec, warm=False))

    def _die(self, kind: str, reason: str, grace: float = 0.0) -> SandboxDied:
        """Ends the sandbox for good; the first reason stays."""
        if self._dead is None:
            ended = self._process.stop(grace)
            self._channel.close()
            if ended == process.MEMORY and kind != "Protocol":
                kind, reason = "MemoryLimit", f"used more than {self.spec.memory_mb} MB of memory"
            elif ended == process.KILLED and kind != "Protocol":
                kind, reason = KILLED, "its process was killed"
            self._dead = (kind, reason)
        return SandboxDied(*self._dead)


def sentence(fault: Exception | None) -> str | None:
    if fault is None:
        return None
    line = getattr(fault, "line", "")
    return f"{fault} ({line})" if line else str(fault)
