"""How much memory and how many processes a sandbox may use: a cgroup for each, or rlimits.

bubblewrap limits neither. A cgroup (version 1 or 2) limits the sandbox as a whole. Without one, the
limits of setrlimit are left: RLIMIT_AS counts per process, and RLIMIT_NPROC does not hold for root.
So root is refused without a cgroup.

Groups have equal shares of the CPUs, which is what the kernel gives a new one, so that a sandbox
with many busy threads takes nothing from its neighbours; where no such group can be made, student
code has at least a lower priority than the grader.
"""

import contextlib
import functools
import itertools
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROCESSES = Path("/proc/self/ns/pid")  # the namespace in which a process id means something
PREFIX = f"efflib-sandbox.{PROCESSES.stat().st_ino if PROCESSES.exists() else 0}"
FILE_MB, OPEN_FILES = 512, 256
OWN_PROCESSES = 3  # bwrap outside, bwrap as process 1, the worker itself
DYING_SECONDS = 5
LEFTOVER_SECONDS = 300  # another container's empty group may be one that is just being started
NICE = 5
COUNTER = itertools.count()
GRADER = os.getpid()  # which the children that it forks name their groups after, too
# What a limit is called: (file, value); memory.* in bytes. Swap files are missing on many kernels.
MEMORY_FILES = {
    1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    2: ("memory.max", "memory.swap.max"),
}


class SandboxUnavailable(Exception):
    """No sandbox can be started here; the text says why and what to do about it."""


@dataclass(frozen=True)
class Cgroup:
    """One sandbox's group: one folder (version 2), or one per controller (version 1)."""

    folders: tuple[Path, ...]
    shares: bool = False  # whether it has a share of the CPUs

    def remove(self) -> None:
        """Removes the empty group; a group with processes stays."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


def own_cgroups(text: str | None = None) -> dict[str, str]:
    """{controller: path} of this process, "" for version 2, as /proc/self/cgroup says."""
    text = Path("/proc/self/cgroup").read_text() if text is None else text
    paths = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= {name: path for name in controllers.split(",")}
    return paths


def parent_sets(root: Path = CGROUP_ROOT, own: dict[str, str] | None = None) -> list[tuple]:
    """[(version, folders)]: where a group for a sandbox might be made, best first."""
    try:
        own = own_cgroups() if own is None else own
    except OSError:
        return []
    found = []
    if (root / "cgroup.controllers").exists():
        here = root / own.get("", "/").lstrip("/")
        for folder in [here, *here.parents]:
            if not folder.is_relative_to(root):
                break
            with contextlib.suppress(OSError):
                if {"memory", "pids"} <= set(
                    (folder / "cgroup.subtree_control").read_text().split()
                ):
                    found.append((2, (folder,)))
    elif (root / "memory").is_dir() and (root / "pids").is_dir():
        for names in (("memory", "cpu", "cpuacct", "pids"), ("memory", "pids")):
            inside = [root / name / own.get(name, "/").lstrip("/") for name in names]
            for folders in (inside, [root / name for name in names]):
                # cpu and cpuacct are often two names of one folder
                folders = tuple(dict.fromkeys(folder.resolve() for folder in folders))
                if all(folder.is_dir() for folder in folders) and (1, folders) not in found:
                    found.append((1, folders))
    return found


def make_in(version: int, parents: tuple[Path, ...], memory_mb: int, processes: int) -> Cgroup:
    """A group with both limits set. Raises OSError."""
    name = f"{PREFIX}-{GRADER}-{os.getpid()}-{next(COUNTER)}"
    group = Cgroup(tuple(parent / name for parent in parents), has_shares(version, parents))
    try:
        for folder in group.folders:
            folder.mkdir()
        memory, pids = group.folders[0], group.folders[-1]
        size = str(memory_mb * 2**20)
        limit, swap = MEMORY_FILES[version]
        (memory / limit).write_text(size)
        with contextlib.suppress(OSError):
            (memory / swap).write_text(size if version == 1 else "0")
        (pids / "pids.max").write_text(str(processes + OWN_PROCESSES))
    except OSError:
        group.remove()
        raise
    return group


def has_shares(version: int, parents: tuple[Path, ...]) -> bool:
    if version == 1:
        return any((parent / "cpu.shares").exists() for parent in parents)
    below = parents[0] / "cgroup.subtree_control"
    return below.exists() and "cpu" in below.read_text().split()


def can_join(group: Cgroup) -> bool:
    """Whether a process of ours may enter the group: a child tries it."""
    script = 'for folder; do echo 0 > "$folder/cgroup.procs" || exit 1; done'
    command = ["/bin/sh", "-c", script, "sh", *map(str, group.folders)]
    return subprocess.run(command, capture_output=True).returncode == 0


@functools.cache
def usable_parents() -> tuple | None:
    """The first place where groups can be made and entered, or None."""
    for version, parents in parent_sets():
        try:
            group = make_in(version, parents, 64, 8)
        except OSError:
            continue
        joined = can_join(group)
        group.remove()
        if joined:
            return version, parents
    return None


def make_cgroup(memory_mb: int, processes: int) -> Cgroup | None:
    """A new group for one sandbox; None: this system lets us make none.

    Raises SandboxUnavailable for root without a group.
    """
    usable = usable_parents()
    if usable is not None:
        remove_leftovers(usable[1])
        return make_in(*usable, memory_mb, processes)
    if os.geteuid() == 0:
        raise SandboxUnavailable(
            "root without a writable cgroup: no limit on processes would hold. "
            "Grade as an ordinary user, or mount /sys/fs/cgroup writable "
            "(docker run --cgroupns=private -v /sys/fs/cgroup:/sys/fs/cgroup:rw ...)"
        )
    return None


def remove_leftovers(parents: tuple[Path, ...]) -> None:
    """Removes empty groups whose grader is gone (it was killed before its keeper started)."""
    for parent in parents:
        for folder in parent.glob(f"{PREFIX.partition('.')[0]}.*-*-*"):
            prefix, owner, *_ = folder.name.rsplit("-", 3)
            with contextlib.suppress(OSError):
                old = time.time() - folder.stat().st_mtime > LEFTOVER_SECONDS
                if (old or prefix == PREFIX) and not Path("/proc", owner).exists():
                    folder.rmdir()


def remove_empty() -> None:
    """Removes empty groups of this grader: what is left by children of its own that were killed.

    What such a child had in its group is dying as well, which takes its time on a busy machine.
    """
    usable = usable_parents() if os.getpid() == GRADER else None
    for parent in usable[1] if usable else ():
        until = time.monotonic() + DYING_SECONDS
        while any([orphaned(group) for group in parent.glob(f"{PREFIX}-{GRADER}-*")]):
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        remove_leftovers((parent,))


def orphaned(group: Path) -> bool:
    """Whether a group that was tried to be removed is there still, and who made it is not."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return False
    except OSError:
        return not Path("/proc", group.name.split("-")[-2]).exists()
    return False


def worker_limits(
    memory_mb: int, processes: int | None, cgroup: bool, shares: bool = False
) -> dict[str, int | None]:
    """What the worker sets on itself before student code runs (worker.set_limits).

    processes: None sets no limit; it counts within a user namespace, without one it would count
    all of the user's processes. address_mb is added to what Python and torch have mapped by then.
    """
    limits = {"file_mb": FILE_MB, "open_files": OPEN_FILES, "nice": 0 if shares else NICE}
    return limits if cgroup else limits | {"address_mb": memory_mb, "processes": processes}
