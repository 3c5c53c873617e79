"""A started worker as the grader sees it: two pipes, its end, and what it wrote on stderr."""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Callable

from autograder.sandbox import clock, image, keeper, own_memory
from autograder.sandbox.limits import Cgroup

PIPE_BYTES = 2**20  # tensors pass in fewer steps than with the usual 64 KiB
STDERR_BYTES = 4_000
STOP_SECONDS = 10.0
MEMORY, KILLED = "memory", "killed"  # how a worker may have ended


def pipes() -> tuple[int, int, list[int]]:
    """(the grader's end to read, its end to write, the worker's two ends in that order)"""
    inside_read, write_fd = os.pipe()
    read_fd, inside_write = os.pipe()
    for fd in (write_fd, read_fd):
        with contextlib.suppress(OSError):  # beyond the user's share of buffers
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return read_fd, write_fd, [inside_read, inside_write]


class Process:
    """A worker below a keeper.

    read_fd and write_fd belong to whoever starts it (wire.Channel).
    command: makes the command line from the worker's ends of the pipes (read, write);
    inherited: further descriptors for it; scratch: a folder of its own, removed at the end.
    """

    def __init__(
        self,
        command: Callable[[int, int], list[str]],
        environment: dict[str, str],
        inherited: tuple[int, ...] = (),
        cgroup: Cgroup | None = None,
        scratch: str = "",
    ) -> None:
        self._folders = [str(folder) for folder in cgroup.folders] if cgroup else []
        self._scratch, self._cpu, self.errors = scratch, 0.0, ""
        self.read_fd, self.write_fd, (inside_read, inside_write) = pipes()
        outside = [str(image.interpreter()), "-I", "-S", keeper.__file__, str(os.getpid()), scratch]
        try:
            with own_memory.lifted():
                self._popen = subprocess.Popen(
                    [*outside, *self._folders, "--", *command(inside_read, inside_write)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=(inside_read, inside_write, *inherited),
                    env=environment,
                    cwd=scratch or "/",
                    start_new_session=True,
                )
        except BaseException:
            os.close(self.write_fd)
            os.close(self.read_fd)
            self._clear()
            raise
        finally:
            os.close(inside_read)
            os.close(inside_write)

    def running(self) -> bool:
        return self._popen.poll() is None

    def attach(self) -> None:
        """Nothing: it gets ready by itself."""

    def cpu_seconds(self) -> float:
        """CPU time of the sandbox so far; after its end, what was read last."""
        used = clock.group_seconds(self._folders)
        self._cpu = max(self._cpu, clock.tree_seconds(self._popen.pid) if used is None else used)
        return self._cpu

    def stop(self, grace: float = 0.0) -> str:
        """Kills everything inside; says, once, how it had ended by itself: MEMORY, KILLED, or "".

        grace: seconds that it gets for ending by itself, where it is known to be about to.
        """
        if self._popen.stderr.closed:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(grace)
        before = self._popen.poll()
        self._popen.terminate()
        try:
            code = self._popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            code = self._popen.wait()
        os.set_blocking(self._popen.stderr.fileno(), False)
        self.errors = (self._popen.stderr.read(STDERR_BYTES) or b"").decode(errors="replace")
        self._popen.stderr.close()
        self._clear()
        if code == keeper.OUT_OF_MEMORY:
            return MEMORY
        return KILLED if before in (keeper.KILLED, -signal.SIGKILL, -signal.SIGTERM) else ""

    def _clear(self) -> None:
        """What the keeper does at its end; again, in case that it was killed."""
        keeper.remove(self._folders)
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
