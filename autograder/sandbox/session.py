"""The grader's side of a sandbox: runs cells and calls functions, and survives what comes back.

    with Session(spec) as session:
        session.run_cell("def double(x): return 2 * x")
        session.call("double", (21,), {})                  # 42

`RemoteStudent` is the `student` of the tests: a session with the cells of a notebook, and a new one
whenever student code has killed or spoilt the last.
"""

import time
from dataclasses import dataclass

from autograder.sandbox import launch as sandbox
from autograder.sandbox.conversation import Exchange, reported
from autograder.sandbox.launch import SandboxSpec, SandboxUnavailable
from autograder.sandbox.wire import Channel, WireError
from efflib.lab.codec import CodecError
from efflib.lab.student import Student, StudentError

START_SECONDS = 120.0  # python and torch on a busy machine
STDOUT_CHARS = 10_000
MAX_STARTS = 25  # sessions of one notebook
MAX_REPEATS = 3  # time in which cells may run again, in notebook_seconds
KINDS = {"late": "Timeout", "closed": "Exit", "protocol": "Protocol"}


class SandboxDied(StudentError):
    """Student code ended, blocked or spoilt its sandbox.

    kind: "Timeout", "MemoryLimit", "Exit" or "Protocol"; reason: a sentence.
    """

    fatal = True

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.reason = reason


@dataclass(frozen=True)
class CellReport:
    """What a cell did. error: None, or what it raised; stdout: its first 10 000 characters."""

    error: str | None
    stdout: str
    seconds: float


class Session:
    """One sandbox. It starts at once and gets ready in the background, so make it ahead of need."""

    def __init__(self, spec: SandboxSpec) -> None:
        """Raises SandboxUnavailable."""
        self.spec = spec
        self._process = sandbox.start(spec)
        self._channel = Channel(self._process.read_fd, self._process.write_fd)
        self._exchange = Exchange(self._channel)
        self._ready = False
        self._dead: tuple[str, str] | None = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kills everything inside; returns when it is gone."""
        self._die("Exit", "the sandbox was closed")

    def run_cell(self, source: str, seconds: float = 10.0) -> CellReport:
        """Runs a cell; what it raises is in the report. Raises SandboxDied."""
        started = time.monotonic()
        try:
            value = self._ask({"op": "cell", "source": source}, seconds)
            error, stdout = value["error"], value["stdout"][:STDOUT_CHARS] + ""
            fault = None if error is None else reported(error)
        except SandboxDied:
            raise
        except (StudentError, CodecError) as stopped:  # CodecError: the cell is no text
            fault, stdout = stopped, ""
        except (TypeError, KeyError, WireError):
            raise self._die("Protocol", "it answered a cell with something else") from None
        return CellReport(sentence(fault), stdout, time.monotonic() - started)

    def call(self, name: str, args: tuple = (), kwargs: dict | None = None, seconds: float = 10.0):
        """The value of the student's function. Raises StudentError, SandboxDied."""
        request = {"op": "call", "name": name, "args": tuple(args), "kwargs": kwargs or {}}
        return self._ask(request, seconds)

    def drive(self, source: str, name: str, args: tuple = (), kwargs=None, seconds: float = 10.0):
        """The value of the driver `name` of `source`. Raises StudentError, SandboxDied."""
        request = {"op": "drive", "source": source, "name": name}
        return self._ask(request | {"args": tuple(args), "kwargs": kwargs or {}}, seconds)

    def _ask(self, request: dict, seconds: float):
        if self._dead is not None:
            raise SandboxDied(*self._dead)
        self._get_ready()
        try:
            return self._exchange.ask(request, seconds)
        except WireError as fault:
            text = f"stopped after {seconds:g} s" if fault.kind == "late" else str(fault)
            raise self._die(KINDS[fault.kind], text) from None
        except (StudentError, AssertionError, CodecError):
            raise
        except BaseException:  # Ctrl-C in the middle of an answer: the next one could not be told
            self.close()
            raise

    def _get_ready(self) -> None:
        """Waits until torch is imported. Raises SandboxUnavailable."""
        if self._ready:
            return
        try:
            self._ready = self._exchange.ask({"op": "hello"}, START_SECONDS) == "ready"
        except WireError:
            pass
        if not self._ready:
            kind = self._die("Exit", "it did not start").kind
            raise sandbox.start_failure(self.spec, kind, self._process.errors)

    def _die(self, kind: str, reason: str) -> SandboxDied:
        """Ends the sandbox for good; the first reason stays."""
        if self._dead is None:
            full = self._process.stop()
            self._channel.close()
            if full and kind != "Protocol":
                kind, reason = "MemoryLimit", f"used more than {self.spec.memory_mb} MB of memory"
            self._dead = (kind, reason)
        return SandboxDied(*self._dead)


def sentence(fault: Exception | None) -> str | None:
    if fault is None:
        return None
    line = getattr(fault, "line", "")
    return f"{fault} ({line})" if line else str(fault)


class RemoteStudent(Student):
    """The notebook's functions in a sandbox, for tests.

    cells: the notebook's code cells in order (sources, or objects with `source`); budget: an object
    with cell_seconds, notebook_seconds and call_seconds; session: one started ahead, of that spec.
    A cell that kills its sandbox is left out of the sessions that follow.
    """

    def __init__(self, spec: SandboxSpec, cells, budget, session: Session | None = None) -> None:
        """Raises SandboxUnavailable, and nothing for what the cells do."""
        self._spec, self._budget, self._session = spec, budget, None
        self._cells = [getattr(cell, "source", cell) for cell in cells]
        self._left_out: set[int] = set()
        self._starts, self._seconds = 0, 0.0
        self.notes: list[str] = []
        self.cell_reports: list[CellReport] = []
        self.unavailable: SandboxUnavailable | None = None  # a later sandbox could not be started
        try:
            self._start(session)
        except SandboxDied as fault:
            self.notes.append(fault.reason)

    def limited_to(self, seconds: float) -> "Limited":
        """The same student with another time limit per call."""
        return Limited(self, seconds)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None

    def _call(self, name: str, args: tuple, kwargs: dict, seconds: float | None = None):
        return self._with_session(lambda s, t: s.call(name, args, kwargs, t), seconds)

    def _drive(self, source: str, name: str, args: tuple, kwargs: dict, seconds=None):
        return self._with_session(lambda s, t: s.drive(source, name, args, kwargs, t), seconds)

    def _with_session(self, work, seconds: float | None):
        if self._session is None:
            try:
                self._start()
            except SandboxUnavailable as fault:
                self.unavailable = fault
                raise
        session = self._session
        try:
            return work(session, seconds or self._budget.call_seconds)
        except SandboxDied:
            if self._session is session:  # a call inside this one may have started another
                self._session = None
            raise

    def _start(self, session: Session | None = None) -> None:
        """A session in which every cell has run that does not kill it. Raises SandboxDied."""
        while self._session is None:
            late = self._seconds > MAX_REPEATS * self._budget.notebook_seconds
            if late or self._starts >= MAX_STARTS:
                raise SandboxDied("Exit", f"no new sandbox after {self._starts} that died")
            self._starts += 1
            session = session or Session(self._spec)
            self._session = session if self._run_cells(session) else None
            session = None

    def _run_cells(self, session: Session) -> bool:
        """Runs the cells; False if one of them killed the session: it is left out from then on."""
        left = self._budget.notebook_seconds
        for index, source in enumerate(self._cells):
            if index in self._left_out:
                continue
            if left > 0:
                limit = min(left, self._budget.cell_seconds)
                report = self._run_cell(session, index, source, limit)
            else:
                report = CellReport("not run: the notebook's time was used up", "", 0.0)
            left -= report.seconds
            self._seconds += report.seconds
            if index == len(self.cell_reports):
                self.cell_reports.append(report)
            if index in self._left_out:
                return False
        return True

    def _run_cell(self, session: Session, index: int, source: str, limit: float) -> CellReport:
        started = time.monotonic()
        try:
            return session.run_cell(source, limit)
        except SandboxDied as fault:
            self._left_out.add(index)
            self.notes.append(f"code cell {index + 1} was left out: {fault.reason}")
            return CellReport(str(fault), "", time.monotonic() - started)


class Limited(Student):
    """A RemoteStudent with a time limit of its own for each call."""

    def __init__(self, remote: RemoteStudent, seconds: float) -> None:
        self._remote, self._seconds = remote, seconds

    def _call(self, name: str, args: tuple, kwargs: dict):
        return self._remote._call(name, args, kwargs, self._seconds)

    def _drive(self, source: str, name: str, args: tuple, kwargs: dict):
        return self._remote._drive(source, name, args, kwargs, self._seconds)
