"""Starts sandboxes: forked off a zygote that has torch imported, or one by one from nothing.

A grading process has one zygote for every set of withheld modules, and the children that it forks
use it too.  It ends with the process, and is replaced when it was killed.  While a sandbox is in
use, the next one gets ready (ahead.py).  Where a zygote cannot work, sandboxes are cold, and
`reason` says why.
"""

import atexit
import contextlib
import os
import select
import socket
import threading

from autograder.sandbox import launch, limits
from autograder.sandbox.child import Child, select_on
from autograder.sandbox.launch import SandboxSpec, SandboxUnavailable
from autograder.sandbox.process import KILLED

ONE_AT_A_TIME = threading.Lock()
SILENT_ENDS = 3  # of zygotes that made nothing and said nothing: from then on sandboxes are cold

zygotes: dict[tuple, "Zygote"] = {}  # (withheld modules, imported ones) -> their zygote
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
    key = spec.withhold, spec.preload
    if key not in zygotes or not zygotes[key].alive():
        if key in zygotes:
            zygotes.pop(key).close()
        zygotes[key] = Zygote(spec)
    return zygotes[key]


@atexit.register
def close() -> None:
    """Ends the zygotes of this process, and removes what killed children have left of groups."""
    for key in list(zygotes):
        zygotes.pop(key).close()
    limits.remove_empty()


class Zygote:
    """A process that forks sandboxes."""

    def __init__(self, spec: SandboxSpec) -> None:
        """Raises SandboxUnavailable."""
        self.proven = False  # it has made a sandbox
        self.spare: Child | None = None
        self._owner = os.getpid()
        self._requests, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            self._process = launch.start_zygote(
                SandboxSpec(spec.withhold, preload=spec.preload), there.fileno()
            )
        for fd in (self._process.read_fd, self._process.write_fd):
            os.close(fd)

    def owned(self) -> bool:
        """Whether this process started it, and no parent of this one."""
        return os.getpid() == self._owner

    def alive(self) -> bool:
        if self.owned():
            return self._process.running()
        with select_on(self._requests.fileno()) as poll:
            return not any(event & select.POLLHUP for _, event in poll.poll(0))

    def child(self, spec: SandboxSpec) -> "Child":
        """A sandbox that is about to start, or one that was made ahead."""
        spare, self.spare = self.spare, None
        if spare is not None and spare.spec == spec:
            return spare
        if spare is not None:
            spare.discard()
        return self._fork(spec)

    def make_ahead(self, spec: SandboxSpec) -> None:
        with ONE_AT_A_TIME:
            if self.spare is None and self.owned() and self.alive():
                self.spare = self._fork(spec)

    def hand_on(self) -> None:
        """The sandbox made ahead is that of a child that was just forked."""
        if self.spare is not None:
            self.spare.forget()
            self.spare = None

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
        """What it had to say; nothing if it was killed, or is not this process's."""
        if self.spare is not None:
            self.spare.discard()
            self.spare = None
        self._requests.close()
        if not self.owned():
            return ""
        return "" if self._process.stop() == KILLED else self._process.errors.strip()
