"""Starts sandboxes: forked off a zygote that has torch imported, or one by one from nothing.

Each grading process has one zygote for every set of withheld modules.  It ends with the process,
and is replaced when it was killed.  While a sandbox is in use, the next one gets ready.  Where a
zygote cannot work, sandboxes are cold, and `reason` says why.
"""

import array
import atexit
import contextlib
import json
import os
import select
import signal
import socket
import struct
import threading
import time

from autograder.sandbox import clock, keeper, launch, seccomp
from autograder.sandbox.launch import SandboxSpec, SandboxUnavailable
from autograder.sandbox.process import KILLED, MEMORY, STOP_SECONDS, pipes

START_SECONDS = 600.0  # for a zygote to import torch, on whatever machine
SILENT_ENDS = 3  # of zygotes that made nothing and said nothing: from then on sandboxes are cold
MESSAGE_BYTES = 4_096
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid

zygotes: dict[tuple, "Zygote"] = {}  # (process, withheld modules) -> its zygote
ONE_AT_A_TIME = threading.Lock()
reason: dict[str, str] = {}  # "reason": why no zygote works here
silent_ends: list["Zygote"] = []  # one after the other


def start(spec: SandboxSpec):
    """A worker that is about to start; `attach` waits for it. Raises SandboxUnavailable."""
    if spec.unsafe:
        return launch.start_unsafe(spec)
    if spec.warm and not reason:
        try:
            with ONE_AT_A_TIME:
                return zygote_of(spec).child(spec)
        except SandboxUnavailable as fault:
            if launch.optional_flags():  # otherwise it is only this bubblewrap that is too old
                raise
            reason["reason"] = str(fault)
    return launch.start_cold(spec)


def zygote_of(spec: SandboxSpec) -> "Zygote":
    key = os.getpid(), spec.withhold
    if key not in zygotes or not zygotes[key].alive():
        if key in zygotes:
            zygotes.pop(key).close()
        zygotes[key] = Zygote(spec)
    return zygotes[key]


@atexit.register
def close() -> None:
    """Ends the zygotes of this process."""
    for key in [key for key in zygotes if key[0] == os.getpid()]:
        zygotes.pop(key).close()


class Zygote:
    """A process that forks sandboxes."""

    def __init__(self, spec: SandboxSpec) -> None:
        """Raises SandboxUnavailable."""
        self.proven = False  # it has made a sandbox
        self._spare: Child | None = None
        self._requests, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            self._process = launch.start_zygote(SandboxSpec(spec.withhold), there.fileno())
        for fd in (self._process.read_fd, self._process.write_fd):
            os.close(fd)

    def alive(self) -> bool:
        return self._process.running()

    def child(self, spec: SandboxSpec) -> "Child":
        """A sandbox that is about to start, or one that was made ahead."""
        spare, self._spare = self._spare, None
        if spare is not None and spare.spec == spec:
            return spare
        if spare is not None:
            spare.discard()
        return self._fork(spec)

    def make_ahead(self, spec: SandboxSpec) -> None:
        with ONE_AT_A_TIME:
            if self._spare is None and self.alive():
                self._spare = self._fork(spec)
                self._spare.attach_ahead()

    def _fork(self, spec: SandboxSpec) -> "Child":
        cgroup, own = launch.limited(spec)
        folders = [str(folder) for folder in cgroup.folders] if cgroup else []
        made = Child(self, spec, folders, own)
        with contextlib.suppress(OSError):  # it has just died: the child will say so
            self._requests.sendmsg([b"child"], made.descriptors())
        made.hand_over()
        return made

    def has_worked(self) -> None:
        self.proven = True
        silent_ends.clear()

    def has_failed(self, why: str) -> None:
        """It or its child ended too early.

        A zygote that has made no sandbox yet and says why never will.  One that says nothing was
        killed, perhaps, and the next may live.
        """
        if self.proven:
            return
        said = self.close()
        if self not in silent_ends:
            silent_ends.append(self)
        if why or said or len(silent_ends) >= SILENT_ENDS:
            reason["reason"] = why or said or f"{SILENT_ENDS} zygotes ended without a word"

    def close(self) -> str:
        """What it had to say; nothing if it was killed."""
        if self._spare is not None:
            self._spare.discard()
            self._spare = None
        self._requests.close()
        return "" if self._process.stop() == KILLED else self._process.errors.strip()


class Child:
    """A sandbox forked off a zygote: to the grader what a Process is."""

    def __init__(self, zygote: Zygote, spec: SandboxSpec, folders: list[str], own: dict) -> None:
        self.spec, self._zygote, self._folders, self._limits = spec, zygote, folders, own
        self._cpu, self.errors, self._ahead = 0.0, "", None
        self.read_fd, self.write_fd, self._inside = pipes()
        self._control, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._inside.append(there.detach())
        self._pid, self._pidfd, self._ended = 0, -1, False

    def descriptors(self) -> list[tuple]:
        return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", self._inside))]

    def hand_over(self) -> None:
        """The worker's ends are the zygote's now."""
        for fd in self._inside:
            os.close(fd)

    def attach(self) -> None:
        """Waits until it is ready; from then on the next one is made."""
        if self._ahead is None:
            self._attach()
        else:
            self._ahead.join()
        if not self.errors:
            self._zygote.make_ahead(self.spec)

    def attach_ahead(self) -> None:
        self._ahead = threading.Thread(target=self._attach, daemon=True)
        self._ahead.start()

    def discard(self) -> None:
        """The end of one that nobody needed."""
        self.stop()
        for fd in (self.read_fd, self.write_fd):
            os.close(fd)

    def _attach(self) -> None:
        """Puts the forked process into its group, lets it go on, waits until it is ready."""
        end = time.monotonic() + START_SECONDS
        said, self._pid = self._receive(end)
        if said == b"here":
            try:
                self._admit()
                said, _ = self._receive(end)
            except (ProcessLookupError, ConnectionError):  # it was killed meanwhile
                said = b""
            except OSError as fault:
                said = f"fault {fault}".encode()
        if said == b"ready":
            self._zygote.has_worked()
            return
        self.errors = said.removeprefix(b"fault ").decode(errors="replace")
        self._zygote.has_failed(self.errors)

    def _admit(self) -> None:
        """Into the group first: without its limits it does not go on."""
        self._pidfd = os.pidfd_open(self._pid)
        for folder in self._folders:
            with open(f"{folder}/cgroup.procs", "w") as procs:
                procs.write(str(self._pid))
        settings = {"limits": self._limits, "filter": seccomp.program().hex()}
        settings["writable"] = launch.WRITABLE_MB
        self._control.send(b"go " + json.dumps(settings).encode())

    def _receive(self, end: float) -> tuple[bytes, int]:
        """(message, sender's process id); an empty message: there is nobody any more."""
        self._control.settimeout(max(0.0, end - time.monotonic()) or 0.01)
        try:
            size = socket.CMSG_SPACE(CREDENTIALS.size)
            said, extra, _, _ = self._control.recvmsg(MESSAGE_BYTES, size)
        except OSError:
            return b"", 0
        pids = [CREDENTIALS.unpack(c)[0] for _, kind, c in extra if kind == socket.SCM_CREDENTIALS]
        return said, pids[0] if said and pids else 0

    def cpu_seconds(self) -> float:
        """CPU time of the sandbox so far; after its end, what was read last."""
        used = clock.group_seconds(self._folders)
        self._cpu = max(self._cpu, clock.tree_seconds(self._pid) if used is None else used)
        return self._cpu

    def stop(self, grace: float = 0.0) -> str:
        """Kills everything inside; says how it had ended by itself: MEMORY, KILLED, or ""."""
        if self._ended:
            return ""
        self._ended = True
        if self._ahead is not None:
            self._ahead.join()
        said, _ = self._receive(time.monotonic() + grace) if self._readable(grace) else (None, 0)
        self._control.close()
        if self._pidfd >= 0:
            with select_on(self._pidfd) as gone:
                if not gone.poll(STOP_SECONDS * 1000):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
        full = any(keeper.at_own_limit(folder) for folder in self._folders)
        keeper.remove(self._folders)
        if full:
            return MEMORY
        if said == b"":  # the process outside of the namespaces was killed
            return KILLED
        status = (said or b"").removeprefix(b"ended ")
        return KILLED if status.isdigit() and keeper.by_signal(int(status)) else ""

    def _readable(self, grace: float) -> bool:
        with select_on(self._control.fileno()) as poll:
            return bool(poll.poll(grace * 1000))


@contextlib.contextmanager
def select_on(fd: int):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    yield poll
