"""Real processes on this machine, which run a notebook's functions as ranks.

    world = Processes(4)                               starts them: some seconds, once
    world.run(function, [(x0,), (x1,)])                function(x, comm) in two of them
    world.close()

They are ordinary new programs (`python -m efflib.parallel.worker`), not copies of the notebook, so
it is the same on Linux, macOS and Windows.  Functions travel as source (see `sources`), arguments
and results as files in a folder of their own, which is also where the ranks find each other: no
port, no name, no network.  A stop of a run, an error or a rank that waits too long ends all of
them, and the next run starts them anew; a stop of another cell does not concern them.  They also
end when the notebook does, even when it is killed.
"""

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from efflib.checks import expect_whole
from efflib.parallel.distributed import loopback_environment
from efflib.parallel.sources import source_with_needs

LIMIT = 60.0  # seconds that a run may take
# a stop from the keyboard goes to a whole group of programs: the ranks are in another one than the
# notebook, which alone decides whether it concerns them
APART = {"start_new_session": True}
if sys.platform == "win32":
    APART = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}


class Ran(NamedTuple):
    """What a run gave, by rank."""

    values: list[object]
    calls: list[dict[str, tuple[int, int]]]  # {kind: (calls, bytes handed over)}


class Processes:
    """Up to `most` ranks.  Also a context manager, which closes."""

    def __init__(self, most: int) -> None:
        expect_whole(1, most=most)
        self.most, self._running, self._jobs = most, [], 0
        self._folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        self._end = weakref.finalize(self, _end, self._running, self._folder)
        self._start()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes and removes what they wrote.  May be called twice."""
        self._end()

    def pids(self) -> list[int]:
        """The processes' numbers."""
        return [one.process.pid for one in self._running]

    def run(self, function: Callable, args: Sequence[tuple], limit: float = LIMIT) -> Ran:
        """function(*args[r], comm) in rank r of len(args).

        args and results: tensors, numbers, texts, lists, tuples and dicts.  Raises RuntimeError
        with the text of the first rank that failed; TimeoutError after `limit` seconds.
        """
        size = len(args)
        if not 1 <= size <= self.most:
            raise ValueError(f"{size} ranks are asked for, there are 1 to {self.most}")
        if not self._end.alive:
            raise ValueError("these processes are closed")
        if not self._running:
            self._start()
        source = source_with_needs(function)
        self._jobs += 1
        folder = self._folder / f"run{self._jobs}"
        folder.mkdir()
        done = False
        try:
            for rank, own in enumerate(args):
                job = {"source": source, "name": function.__name__, "args": own, "size": size}
                torch.save({**job, "limit": limit}, folder / f"job.{rank}")
            for one in self._running[:size]:
                one.tell(str(folder))
            for rank, one in enumerate(self._running[:size]):
                one.hear(rank, limit)
            results = [torch.load(folder / f"result.{r}", weights_only=True) for r in range(size)]
            self._raise_first(results)
            done = True
        finally:
            if not done:
                self._stop()
            shutil.rmtree(folder, ignore_errors=True)
        return Ran([r["value"] for r in results], [r["calls"] for r in results])

    def _raise_first(self, results: list[dict]) -> None:
        failed = [(r, result) for r, result in enumerate(results) if "fault" in result]
        if failed:  # that a connection was closed is what the others say of the one that failed
            own = [f for f in failed if "onnection" not in f[1]["fault"]]
            rank, result = (own or failed)[0]
            raise RuntimeError(f"rank {rank}: {result['fault']}\n{result['trace']}")

    def _start(self) -> None:
        started = False
        try:
            for rank in range(self.most):
                self._running.append(_One(rank, self._folder))
            for rank, one in enumerate(self._running):
                one.hear(rank, LIMIT)
            started = True
        finally:
            if not started:
                self._stop()

    def _stop(self) -> None:
        for one in self._running:
            one.kill()
        self._running.clear()


class _One:
    """A process, and the thread that listens to it."""

    def __init__(self, rank: int, folder: Path) -> None:
        self.log = folder / f"log.{rank}"
        own = {**loopback_environment(), "OMP_NUM_THREADS": "1", "PYTHONPATH": _path()}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "efflib.parallel.worker", str(rank)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **own},
                **APART,
            )
        self.answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self.answers.put(line.strip())
        self.answers.put("ended")

    def tell(self, text: str) -> None:
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def hear(self, rank: int, limit: float) -> None:
        try:
            answer = self.answers.get(timeout=limit)
        except queue.Empty:
            raise TimeoutError(f"rank {rank} has not finished after {limit:g} seconds") from None
        if answer == "ended":
            last = self.log.read_text(errors="replace").strip().splitlines()[-3:]
            raise RuntimeError(f"the process of rank {rank} has ended: {' / '.join(last)}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:  # what was still to be written to a process that is gone
                pass


def _path() -> str:
    """Where the new programs find efflib, and what else this one has on its path."""
    return os.pathsep.join(p or os.getcwd() for p in sys.path)


def _end(running: list[_One], folder: Path) -> None:
    for one in running:
        one.kill()
    running.clear()
    shutil.rmtree(folder, ignore_errors=True)
