"""Starts one bwrap in its cgroup, and removes both when the grader is done with it, or dies.

Runs as a process of its own (python -I -S keeper.py GRADER FOLDERS -- COMMAND...), so that a killed
grader leaves nothing behind, and so that the grader may start sandboxes from any thread: the kernel
sends bwrap's --die-with-parent signal when the thread that started it ends.
"""

import os
import select
import signal
import sys
import time

ENDED, OUT_OF_MEMORY, NO_START = 0, 90, 91
KILL_SECONDS = 5.0


def main(grader: int, folders: list[str], command: list[str]) -> int:
    """Waits for the first of: bwrap ends, the grader ends, SIGTERM; then clears away."""
    asked, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGTERM, lambda *_: None)
    child = os.fork()
    if child == 0:
        run(folders, command)
    watch = select.poll()
    watch.register(asked, select.POLLIN)
    try:
        for pid in (child, grader):
            watch.register(os.pidfd_open(pid), select.POLLIN)
        if os.getppid() == grader:
            watch.poll()
    except ProcessLookupError:
        pass  # the grader died meanwhile
    finally:
        full = clean(child, folders)
    return OUT_OF_MEMORY if full else ENDED


def run(folders: list[str], command: list[str]) -> None:
    """In the child: enters the group, becomes bwrap."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        for folder in folders:
            with open(f"{folder}/cgroup.procs", "w") as procs:
                procs.write("0")
        os.execv(command[0], command)
    except OSError as fault:
        os.write(2, f"cannot start in the cgroup: {fault}\n".encode())
    os._exit(NO_START)


def clean(child: int, folders: list[str]) -> bool:
    """Kills what is left, removes the group; True if the kernel had killed for lack of memory."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    full = any(oom_kills(folder) for folder in folders)
    end = time.monotonic() + KILL_SECONDS
    for folder in folders:
        while os.path.isdir(folder) and time.monotonic() < end:
            try:
                os.rmdir(folder)
            except OSError:
                kill_all(folder)
                time.sleep(0.002)
    return full


def kill_all(folder: str) -> None:
    with open(f"{folder}/cgroup.procs") as procs:
        for pid in procs.read().split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass


def oom_kills(folder: str) -> int:
    """The kernel's count: memory.events (version 2) or memory.oom_control (version 1)."""
    for name in ("memory.events", "memory.oom_control"):
        try:
            with open(f"{folder}/{name}") as file:
                counts = dict(line.split(maxsplit=1) for line in file)
        except OSError:
            continue
        return int(counts.get("oom_kill", 0))
    return 0


if __name__ == "__main__":
    split = sys.argv.index("--")
    sys.exit(main(int(sys.argv[1]), sys.argv[2:split], sys.argv[split + 1 :]))
