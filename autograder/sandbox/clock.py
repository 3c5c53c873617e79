"""What a piece of student code has cost: computing time, so that a busy machine fails nobody.

The cost is the CPU time of all processes in the sandbox, measured from outside, and at least a
tenth of the time that has passed, so that code which only waits comes to an end too.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

WALL_FACTOR = 10.0  # so much longer than its limit may code take that waits or is kept waiting
STEP_SECONDS = 0.05  # between two looks at the meter
CORES = os.cpu_count() or 1
TICKS = os.sysconf("SC_CLK_TCK")


class Meter:
    """The cost since the meter was made; limit: what it may be.

    cpu: the CPU seconds that the sandbox has used in its life.
    """

    def __init__(self, limit: float, cpu: Callable[[], float] = lambda: 0.0) -> None:
        self._cpu, self._limit = cpu, limit
        self._before, self._started = cpu(), time.monotonic()

    def cost(self) -> float:
        passed = time.monotonic() - self._started
        return max(self._cpu() - self._before, passed / WALL_FACTOR)

    def left(self) -> float:
        """Seconds to wait before the next look; 0: the limit is reached."""
        rest = self._limit - self.cost()
        return max(rest / CORES, STEP_SECONDS) if rest > 0 else 0.0


def group_seconds(folders: list[str]) -> float | None:
    """CPU seconds of a cgroup: cpu.stat (version 2), cpuacct.usage (version 1), else None."""
    for folder in map(Path, folders):
        try:
            if (folder / "cpuacct.usage").exists():
                return int((folder / "cpuacct.usage").read_text()) / 1e9
            if (folder / "memory.max").exists():
                return int((folder / "cpu.stat").read_text().split()[1]) / 1e6
        except OSError:  # it was just removed
            return None
    return None


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
