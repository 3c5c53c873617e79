"""The `student` of the tests: the functions of a notebook whose cells have run in a sandbox.

A new sandbox is started, and the cells run again in it, whenever student code has killed or spoilt
the last one.  One that was killed by a signal may have been killed from outside, which nobody can
tell from here: what it was doing then is repeated once, and a few times in all.
"""

import math
import time
from collections import Counter
from collections.abc import Iterable

from autograder.sandbox.clock import Meter
from autograder.sandbox.launch import SandboxSpec, SandboxUnavailable
from autograder.sandbox.session import KILLED, CellReport, SandboxDied, Session
from efflib.lab.seeds import derived_seed
from efflib.lab.student import Student

MAX_STARTS = 25  # sessions of one notebook
NOT_RUN = CellReport("not run: the time for a student's own cells was used up", "", 0.0)
LEFT_OUT = CellReport("left out", "", 0.0)
MAX_REPEATS = 3  # time in which cells may run again, in notebook_seconds
MAX_KILLED = 3  # cells and tests of a notebook that are repeated because their sandbox was killed
LATER = "A cell ended its process when it ran once more, for hidden tests."
AT_ONCE = 16  # calls that travel together; a hostile one may take the time of all
REPEAT = CellReport(None, "", 0.0)  # of a cell whose sandbox was killed, perhaps from outside


class RemoteStudent(Student):
    """The notebook's functions in a sandbox, for tests.

    cells: the notebook's code cells in order (sources, or objects with `source`, `kind` and
    `definitions`); budget: an object with cell_seconds, notebook_seconds and call_seconds; session:
    one started ahead, of that spec; end: time (monotonic) after which no cell runs any more.  Cells
    of kind "own" share the notebook's time, all others have their own.  A cell that kills its
    sandbox is left out of the sessions that follow.  Of a cell that raised, was left
    out, stopped or not run at all, the definitions are run that it did not come to: pairs of the
    line at which one begins, and its code.
    """

    def __init__(
        self, spec: SandboxSpec, cells, budget, session: Session | None = None, end=None
    ) -> None:
        """Raises SandboxUnavailable, and nothing for what the cells do."""
        self._spec, self._budget, self._session, self._end = spec, budget, None, end or math.inf
        self._cells = [
            (getattr(c, "source", c), getattr(c, "kind", "own"), getattr(c, "definitions", ()))
            for c in cells
        ]
        self._deaths: Counter[int] = Counter()  # of sandboxes, by the cell that killed them
        self._killed: set[int] = set()  # cells that were running when their sandbox was killed
        self._starts, self._seconds = 0, 0.0
        self._seed, self._calls = 0, 0
        self._clean: Session | None = None  # beside the notebook's own, see _apart
        self._place = ""
        self.killed_calls = 0
        self.swallowed = False  # the end of a killed call did not reach the test's report
        self.repeats = MAX_KILLED  # that are left
        self.doubtful = False  # a cell is left out that may be innocent
        self.notes: list[str] = []
        self.quiet = False  # hidden input was seen: which cells end a sandbox is not told any more
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
        self._leave()
        if self._session is not None:
            self._session.close()
        self._session = None

    def renew(self) -> None:
        """The next call meets a sandbox in which nothing but the notebook's cells has run."""
        if self._session is not None:
            self._session.close()
        self._session = None

    def _begin(self, seed: int) -> None:
        self._seed, self._calls = seed, 0

    def _call_seed(self) -> int:
        """One for each call of a test: what was called before in another test does not matter."""
        self._calls += 1
        return derived_seed(self._seed, self._calls)

    def _call(self, name: str, args: tuple, kwargs: dict, seconds: float | None = None):
        own = self._call_seed()
        return self._with_session(lambda s, t: s.call(name, args, kwargs, t, own), seconds)

    def _many(
        self, name: str, calls: list[tuple[tuple, dict]], seconds: float | None = None
    ) -> list:
        """AT_ONCE of them in one go."""
        values = []
        for start in range(0, len(calls), AT_ONCE):
            batch = calls[start : start + AT_ONCE]
            own = [(args, kwargs, self._call_seed()) for args, kwargs in batch]
            values += self._with_session(lambda s, t, own=own: s.many(name, own, t), seconds)
        return values

    def _drive(self, source: str, name: str, args: tuple, kwargs: dict, seconds=None):
        own = self._call_seed()
        return self._with_session(lambda s, t: s.drive(source, name, args, kwargs, t, own), seconds)

    def _apart(self, place: str, source: str, name: str, args: tuple, seconds=None):
        """In a sandbox in which no cell has run and none will; the last one is kept."""
        own, limit = self._call_seed(), seconds or self._budget.call_seconds
        if place != self._place or self._clean is None:
            self._leave()
            try:
                self._clean, self._place = Session(self._spec), place
            except SandboxUnavailable as fault:
                self.unavailable = fault
                raise
        try:
            return self._clean.drive(source, name, args, {}, limit, own)
        except SandboxDied as fault:
            self._leave()
            self.killed_calls += fault.kind == KILLED
            raise

    def _leave(self) -> None:
        """Ends the sandbox in which none of the notebook's cells has run."""
        if self._clean is not None:
            self._clean.close()
        self._clean, self._place = None, ""

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
        except SandboxDied as fault:
            self.killed_calls += fault.kind == KILLED
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
        most = self._budget.cell_seconds
        own, spare = self._budget.notebook_seconds, most  # spare: for definitions of all cells
        for index, (source, kind, definitions) in enumerate(self._cells):
            deaths, report = self._deaths[index], LEFT_OUT
            if time.monotonic() > self._end:
                return True  # nothing is called any more either
            if not deaths:
                limit = min(own, most) if kind == "own" else most
                report = self._run_cell(session, index, source, limit) if limit > 0 else NOT_RUN
                own -= report.seconds if kind == "own" else 0
                if report is REPEAT:
                    return False
                if index == len(self.cell_reports):
                    self.cell_reports.append(report)
            alive = deaths == self._deaths[index] < 2
            missing = behind(report, definitions) if alive else ""
            if missing and spare > 0:
                report = self._run_cell(session, index, missing, spare)
                spare -= report.seconds
            if report is REPEAT or self._deaths[index] > deaths:
                return False
        return True

    def _run_cell(self, session: Session, index: int, source: str, limit: float) -> CellReport:
        meter = Meter(0.0)
        try:
            meter = session.meter()
            report = session.run_cell(source, limit)
        except SandboxDied as fault:
            if fault.kind == KILLED and self._may_repeat(index):
                self._note(f"code cell {index + 1} was run again: {fault.reason}")
                return REPEAT
            self.doubtful = self.doubtful or fault.kind == KILLED
            if not self._deaths[index]:
                self._note(f"code cell {index + 1} was left out: {fault.reason}")
            self._deaths[index] += 1
            report = CellReport(str(fault), "", meter.cost())
        self._seconds += report.seconds
        return report

    def _note(self, note: str) -> None:
        """A clock is enough to tell the cells of a later sandbox what an earlier one has seen."""
        self.notes.append(LATER if self.quiet else note)

    def _may_repeat(self, index: int) -> bool:
        """Whether a cell gets a second try in a fresh sandbox."""
        if index in self._killed or not self.repeats:
            return False
        self._killed.add(index)
        self.repeats -= 1
        return True


def behind(report: CellReport, definitions: Iterable[tuple[int, str]]) -> str:
    """The definitions that a cell did not come to: it raised, was stopped, or may not run.

    Those that it came to are done, and what it made of them since must stay.
    """
    if report.error is None:
        return ""
    return "\n".join(text for line, text in definitions if line > report.line)


class Limited(Student):
    """A RemoteStudent with a time limit of its own for each call."""

    def __init__(self, remote: RemoteStudent, seconds: float) -> None:
        self._remote, self._seconds = remote, seconds

    def _begin(self, seed: int) -> None:
        self._remote._begin(seed)

    def _call(self, name: str, args: tuple, kwargs: dict):
        return self._remote._call(name, args, kwargs, self._seconds)

    def _many(self, name: str, calls: list[tuple[tuple, dict]]) -> list:
        return self._remote._many(name, calls, self._seconds)

    def _drive(self, source: str, name: str, args: tuple, kwargs: dict):
        return self._remote._drive(source, name, args, kwargs, self._seconds)

    def _apart(self, place: str, source: str, name: str, args: tuple):
        return self._remote._apart(place, source, name, args, self._seconds)
