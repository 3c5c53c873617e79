"""A sandbox forked off a zygote, step by step: as the grader sees it, what a Process is."""

import array
import contextlib
import json
import os
import select
import signal
import socket
import struct
import time

from autograder.sandbox import clock, keeper, launch, seccomp
from autograder.sandbox.launch import SandboxSpec
from autograder.sandbox.process import KILLED, MEMORY, STOP_SECONDS, pipes

START_SECONDS = 600.0  # for a zygote to import torch, on whatever machine
MESSAGE_BYTES = 4_096
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class Child:
    """zygote: what it is forked off, which hears how that went."""

    def __init__(self, zygote, spec: SandboxSpec, folders: list[str], own: dict) -> None:
        self.spec, self._zygote, self._folders, self._limits = spec, zygote, folders, own
        self._cpu, self.errors = 0.0, ""
        self.read_fd, self.write_fd, self._inside = pipes()
        self._control, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._inside.append(there.detach())
        self._pid, self._pidfd, self._ended = 0, -1, False
        self._expected = b"here"  # the next word; none: it is ready, or will never be

    def descriptors(self) -> list[tuple]:
        return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", self._inside))]

    def hand_over(self) -> None:
        """The worker's ends are the zygote's now."""
        for fd in self._inside:
            os.close(fd)

    def attach(self) -> None:
        """Waits until it is ready; from then on the next one is made."""
        end = time.monotonic() + START_SECONDS
        while self._expected:
            self.step(end)
        if not self.errors:
            self._zygote.make_ahead(self.spec)

    def unready(self) -> int:
        """The descriptor that tells when to go on with `step`; -1: it is ready."""
        return self._control.fileno() if self._expected else -1

    def forget(self) -> None:
        """Leaves it to a child, which has the same descriptors."""
        self._ended = True
        self._control.close()
        for fd in {self.read_fd, self.write_fd, self._pidfd} - {-1}:
            os.close(fd)

    def discard(self) -> None:
        """The end of one that nobody needed."""
        self.stop()
        for fd in (self.read_fd, self.write_fd):
            os.close(fd)

    def step(self, end: float) -> None:
        """The next word: puts the forked process into its group, or sees that it is ready."""
        said, pid = self._receive(end)
        expected, self._expected = self._expected, b""
        if said == b"here" == expected:
            self._pid = pid
            try:
                self._admit()
                self._expected = b"ready"
                return
            except (ProcessLookupError, ConnectionError):  # it was killed meanwhile
                said = b""
            except OSError as fault:
                said = f"fault {fault}".encode()
        if said == b"ready" == expected:
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
