"""A started worker as the grader sees it: two pipes, its end, and what it wrote on stderr."""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Callable

from autograder.sandbox.keeper import OUT_OF_MEMORY
from autograder.sandbox.limits import Cgroup

PIPE_BYTES = 2**20  # tensors pass in fewer steps than with the usual 64 KiB
STDERR_BYTES = 4_000
STOP_SECONDS = 10.0


class Process:
    """A worker: below a keeper, or (folder given) an unsafe one by itself.

    read_fd and write_fd belong to whoever starts it (wire.Channel).
    command: makes the command line from the worker's ends of the pipes (read, write);
    inherited: further descriptors for it; folder: its scratch directory, removed at the end.
    """

    def __init__(
        self,
        command: Callable[[int, int], list[str]],
        environment: dict[str, str],
        inherited: tuple[int, ...] = (),
        cgroup: Cgroup | None = None,
        folder: str | None = None,
    ) -> None:
        self._cgroup, self._folder, self.errors = cgroup, folder, ""
        inside_read, self.write_fd = os.pipe()
        self.read_fd, inside_write = os.pipe()
        for fd in (self.write_fd, self.read_fd):
            with contextlib.suppress(OSError):  # beyond the user's share of buffers
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            self._popen = subprocess.Popen(
                command(inside_read, inside_write),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(inside_read, inside_write, *inherited),
                env=environment,
                cwd=folder or "/",
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

    def stop(self) -> bool:
        """Kills everything inside; True if the kernel had run out of the allowed memory."""
        if self._folder is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
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
        return code == OUT_OF_MEMORY

    def _clear(self) -> None:
        if self._cgroup is not None:
            self._cgroup.remove()  # if the keeper could not
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
