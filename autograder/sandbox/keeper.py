"""Starts one sandbox in its cgroup, and removes both when the grader is done with it, or dies.

Runs as a process of its own (python -I -S keeper.py GRADER SCRATCH FOLDERS -- COMMAND...; SCRATCH
is a folder to delete at the end, or empty), so that a killed grader leaves nothing behind, and so
that the grader may start sandboxes from any thread: the kernel sends bwrap's --die-with-parent
signal when the thread that started it ends.
"""

import contextlib
import glob
import os
import select
import shutil
import signal
import sys
import time

ENDED, OUT_OF_MEMORY, NO_START, KILLED = 0, 90, 91, 92
BY_SIGNAL = (signal.SIGKILL, signal.SIGTERM)  # of the kernel out of memory, of an administrator
KILL_SECONDS = 5.0
SLACK_BYTES = 2**21  # the largest piece in which memory is counted


def main(grader: int, scratch: str, folders: list[str], command: list[str]) -> int:
    """Waits for the first of: the sandbox ends, the grader ends, SIGTERM; then clears away."""
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
        code = clean(child, folders)
        if os.getppid() != grader:  # it has ended; in /proc it may still be
            remove(family(folders))
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
    return code


def run(folders: list[str], command: list[str]) -> None:
    """In the child: enters the group, becomes the sandbox."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setpgid(0, 0)
    try:
        for folder in folders:
            with open(f"{folder}/cgroup.procs", "w") as procs:
                procs.write("0")
        os.execv(command[0], command)
    except OSError as fault:
        os.write(2, f"cannot start in the cgroup: {fault}\n".encode())
    os._exit(NO_START)


def clean(child: int, folders: list[str]) -> int:
    """Kills what is left, removes the group; says how the sandbox had ended by itself.

    OUT_OF_MEMORY: it came to the limit of its own group. KILLED: by a signal that may have come
    from outside, for example when the whole machine had no memory left.
    """
    ended, status = os.waitpid(child, os.WNOHANG)
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(child, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
    code = ENDED
    if any(at_own_limit(folder) for folder in folders):
        code = OUT_OF_MEMORY
    elif ended and by_signal(status):
        code = KILLED
    remove(folders)
    return code


def by_signal(status: int) -> bool:
    """bwrap ends with 128 + n when what it runs was ended by signal n."""
    code = os.waitstatus_to_exitcode(status)
    return code in {value for number in BY_SIGNAL for value in (-number, 128 + number)}


def remove(folders: list[str]) -> None:
    """Kills what is in the groups, and removes them."""
    end = time.monotonic() + KILL_SECONDS
    for folder in folders:
        while os.path.isdir(folder) and time.monotonic() < end:
            try:
                os.rmdir(folder)
            except OSError:
                kill_all(folder)
                time.sleep(0.002)


def family(folders: list[str]) -> list[str]:
    """All groups of the same process: <prefix>-<grader>-<process>-<number>.

    For a grader itself those of its children too, which end with it.
    """
    found = []
    for folder in folders:
        own, process, _ = folder.rsplit("-", 2)
        grader = own.rpartition("-")[2]
        found += glob.glob(f"{own}-*" if process == grader else f"{own}-{process}-*")
    return found


def kill_all(folder: str) -> None:
    with contextlib.suppress(OSError), open(f"{folder}/cgroup.procs") as procs:
        for pid in procs.read().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def at_own_limit(folder: str) -> bool:
    """Whether the kernel killed in this group because of the group's own limit.

    `oom_kill` also counts kills for lack of memory in the machine or in a group around this one.
    In version 2 `oom` counts only what came to this limit; in version 1 the highest usage tells.
    """
    events = counts(f"{folder}/memory.events")
    if events:
        return bool(events.get("oom_kill") and events.get("oom"))
    if not counts(f"{folder}/memory.oom_control").get("oom_kill"):
        return False
    kinds = (f"{folder}/memory", f"{folder}/memory.memsw")
    return any(
        number(f"{kind}.max_usage_in_bytes") + SLACK_BYTES >= number(f"{kind}.limit_in_bytes") > 0
        for kind in kinds
    )


def counts(file: str) -> dict[str, int]:
    try:
        with open(file) as lines:
            return {name: int(value) for name, value in map(str.split, lines)}
    except OSError:
        return {}


def number(file: str) -> int:
    try:
        with open(file) as content:
            return int(content.read())
    except OSError:
        return 0


if __name__ == "__main__":
    split = sys.argv.index("--")
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:split], sys.argv[split + 1 :]))
