"""What a piece of student code has cost: computing time, so that a busy machine fails nobody.

The cost is the CPU time of all processes in the sandbox, measured from outside, and at least a
tenth of the time that has passed, so that code which only waits comes to an end too.
"""

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path

WALL_FACTOR = 10.0  # so much longer than its limit may code take that waits or is kept waiting
STEP_SECONDS = 0.05  # between two looks at the meter
CORES = os.cpu_count() or 1
USAGE_BYTES = 1_000  # of cpu.stat, which begins with the CPU time
TICKS = os.sysconf("SC_CLK_TCK")


class Meter:
    """The cost since the meter was made; limit: what it may be.

    cpu: the CPU seconds that the sandbox has used in its life.
    """

    def __init__(self, limit: float, cpu: Callable[[], float] = lambda: 0.0) -> None:
        self._cpu, self._limit = cpu, limit
        self._before, self._started = cpu(), time.monotonic()

    def passed(self) -> float:
        return time.monotonic() - self._started

    def cost(self) -> float:
        return max(self._cpu() - self._before, self.passed() / WALL_FACTOR)

    def left(self) -> float:
        """Seconds to wait before the next look; 0: the limit is reached."""
        rest = self._limit - CORES * self.passed()  # more than that no process can have used
        rest = rest if rest > CORES * STEP_SECONDS else self._limit - self.cost()
        return max(rest / CORES, STEP_SECONDS) if rest > 0 else 0.0


def group_seconds(folders: list[str]) -> float | None:
    """CPU seconds of a cgroup: cpu.stat (version 2), cpuacct.usage (version 1), else None."""
    found = usage_file(tuple(folders))
    try:
        fd = os.open(found, os.O_RDONLY) if found else -1
    except OSError:  # it was just removed
        return None
    if fd < 0:
        return None
    try:
        said = os.read(fd, USAGE_BYTES).split()
    except OSError:
        return None
    finally:
        os.close(fd)
    return int(said[1]) / 1e6 if found.endswith("cpu.stat") else int(said[0]) / 1e9


@functools.lru_cache(maxsize=64)  # asked before and after every call of a student's function
def usage_file(folders: tuple[str, ...]) -> str:
    """The file in which a cgroup counts its CPU time, or an empty string."""
    for folder in folders:
        if os.path.exists(f"{folder}/cpuacct.usage"):
            return f"{folder}/cpuacct.usage"
        if os.path.exists(f"{folder}/memory.max"):
            return f"{folder}/cpu.stat"
    return ""


def tree_seconds(root: int) -> float:
    """CPU seconds of a process and all below it, with their children that have ended."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15])) / TICKS
    total, todo = 0.0, [root]
    while todo:
        pid = todo.pop()
        total += used.get(pid, 0.0)
        todo += parents.get(pid, [])
    return total
