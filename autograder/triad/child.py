"""A forked child that may loop, eat memory or crash: what it gave, or how it ended."""

import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator

from autograder.grading.server import die_with

CHILD_SECONDS = 600.0  # a child that sleeps is killed then
CHILD_CPU_SECONDS = 300


def set_limits(memory_mb: int) -> None:
    """CPU time of this process, and memory on top of what is mapped already."""
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + memory_mb * 2**20,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (CHILD_CPU_SECONDS,) * 2)


def in_child(work: Callable[[], bytes]) -> tuple[bytes, str]:
    """(the bytes that work() gave in a forked child, how the child ended); b"" if it gave none."""
    read, write = os.pipe()
    worker = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with(worker)
            os.close(read)
            with os.fdopen(write, "wb") as pipe:
                pipe.write(work())
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    try:
        data = b"".join(chunks(read, time.monotonic() + CHILD_SECONDS))
    except BaseException as fault:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if isinstance(fault, TimeoutError):
            return b"", f"killed after {CHILD_SECONDS:g} s"
        raise
    finally:
        os.close(read)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return data if code == 0 else b"", f"exit code {code}" if code >= 0 else f"signal {-code}"


def chunks(fd: int, end: float) -> Iterator[bytes]:
    """What can be read from a pipe until it is closed. Raises TimeoutError."""
    while select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
        data = os.read(fd, 2**16)
        if not data:
            return
        yield data
    raise TimeoutError
