"""Runs jobs in children of a grading server (server.py), and survives what jobs do to them.

Each job has a process of its own, so one that dies costs its own job only: that runs once more, at
the end and alone.  A server that dies takes the jobs in flight along; the next job starts another.
"""

import contextlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import spawn
from typing import TypeVar

from autograder.grading.server import ANSWER, HEADER, KIND, ONE_THREAD, at_once

Item = TypeVar("Item")
Outcome = bytes | Exception
Ready = Callable[[Callable[[], None]], None]
POLL_SECONDS = 1.0
STOP_SECONDS = 30.0
CHUNK = 2**16
START = "import sys; from autograder.grading.server import main; main(*map(int, sys.argv[1:]))"


class WorkerDied(Exception):
    """The process that ran this job ended without an answer."""


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def preparation() -> dict[str, object]:
    """What a server takes over from this process: folders, arguments, paths of modules."""
    data = spawn.get_preparation_data("grading server")
    del data["authkey"]  # it may not be written down
    # no job needs the main module, and a script that grades would grade once more in the server
    return {key: value for key, value in data.items() if not key.startswith("init_main")}


class Server:
    """A started server. Jobs are functions of modules, not of a script (`__main__`).

    get_ready: runs in it, does what helps all jobs, and calls its argument, which serves.
    """

    def __init__(self, get_ready: Ready = at_once) -> None:
        self.running = 0  # jobs
        self._requests, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        setting = memory_file(preparation(), get_ready)
        fds = there.detach(), setting
        path = os.pathsep.join(filter(None, sys.path))  # as this process found the packages
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, *map(str, fds)],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                env=os.environ | ONE_THREAD | {"PYTHONPATH": path},
            )
        finally:
            for fd in fds:
                os.close(fd)

    def alive(self) -> bool:
        return self._process.poll() is None

    def start(self, job: Callable[[Item], bytes], item: Item, limit: float) -> "Job":
        """limit: seconds until it is given up."""
        read, write = os.pipe()
        fds = [memory_file((job, item)), write]
        with contextlib.suppress(OSError):  # the server has just died: the pipe will say so
            socket.send_fds(self._requests, [b"job"], fds)
        for fd in fds:
            os.close(fd)
        return Job(read, time.monotonic() + limit, self._process)

    def close(self) -> None:
        """Ends it and its children; returns when they have cleared away."""
        self._requests.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Job:
    """A job that runs: what has come of it so far."""

    def __init__(self, fd: int, end: float, server: subprocess.Popen) -> None:
        self.fd, self._end, self._server = fd, end, server
        self._data, self.late = bytearray(), False

    def read(self) -> bool:
        """Takes what is there; whether that was the end."""
        data = os.read(self.fd, CHUNK)
        self._data += data
        if not data:
            os.close(self.fd)
        return not data

    def give_up_when_late(self) -> None:
        """Kills it; its pipe says then that it has ended."""
        if time.monotonic() > self._end and not self.late:
            self.late = True
            with contextlib.suppress(ProcessLookupError):
                if len(self._data) >= HEADER.size:
                    os.kill(HEADER.unpack_from(self._data)[0], signal.SIGKILL)
                else:  # the server has not even begun with it
                    self._server.kill()

    def outcome(self) -> Outcome | None:
        """None: it died."""
        start = HEADER.size + KIND.size
        if len(self._data) < start:
            return None
        kind, size = KIND.unpack_from(self._data, HEADER.size)
        data = bytes(self._data[start:])
        if len(data) != size:
            return None
        return data if kind == ANSWER else pickle.loads(data)


def memory_file(*values: object) -> int:
    """A file without a name that holds the pickled values."""
    fd = os.memfd_create("job")
    with open(fd, "wb", closefd=False) as file:
        for value in values:
            pickle.dump(value, file)
    return fd


# ---- many jobs ----------------------------------------------------------------------------------


def run_jobs(
    job: Callable[[Item], bytes],
    items: Iterable[Item],
    jobs: int,
    limit: float,
    get_ready: Ready = at_once,
) -> Iterator[tuple[Item, Outcome]]:
    """Yields (item, answer or exception) as they come. limit: seconds until a job is given up.

    The server starts at once, whenever the first answer is asked for, and ends with the iterator.
    """
    found = answers(job, deque(items), jobs, limit, get_ready)
    next(found)  # from here on its `finally` runs, also when no answer is ever asked for
    return found


def answers(
    job: Callable[[Item], bytes],
    waiting: deque[Item],
    jobs: int,
    limit: float,
    get_ready: Ready,
) -> Iterator[tuple[Item, Outcome]]:
    """None once the server starts; then what run_jobs yields, while the next jobs run."""
    again, running, done = deque(), {}, deque()
    server = Server(get_ready) if waiting else None
    try:
        yield None
        while waiting or running or again or done:
            alone = not waiting and not running
            while waiting and len(running) < jobs or alone and again and not running:
                if not server.alive():
                    server = replaced(server, get_ready)
                item = waiting.popleft() if waiting else again.popleft()
                started = server.start(job, item, limit)
                running[started.fd] = started, item, alone
            if done:
                yield done.popleft()
                continue
            for fd in ended({fd: started for fd, (started, _, _) in running.items()}):
                started, item, second = running.pop(fd)
                outcome = started.outcome()
                if outcome is None and started.late:
                    outcome = WorkerDied(f"grading it took longer than {limit:g} s")
                if outcome is None and not second:
                    again.append(item)
                    continue
                if outcome is None:
                    outcome = WorkerDied("the process that graded it died")
                done.append((item, outcome))
    finally:
        if server is not None:
            server.close()
        for fd in running:
            os.close(fd)


def replaced(server: Server | None, get_ready: Ready) -> Server:
    if server is not None:
        server.close()
    return Server(get_ready)


def ended(running: dict[int, Job]) -> list[int]:
    """Waits a moment; the descriptors of jobs that have come to their end."""
    poll = select.poll()
    for fd, job in running.items():
        poll.register(fd, select.POLLIN)
        job.give_up_when_late()
    return [fd for fd, _ in poll.poll(POLL_SECONDS * 1000) if running[fd].read()]
