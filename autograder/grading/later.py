"""What can wait until the answer of a job is on its way: the end of its sandbox, above all.

The kernel takes its time for that, and whoever waits for the answer need not.  In a process that
grades by itself nothing waits.
"""

from collections.abc import Callable

waiting: list[Callable[[], None]] | None = None  # None: nobody asks for it later


def wait_with() -> None:
    """From now on `do` waits for `now`."""
    global waiting
    waiting = []


def do(work: Callable[[], None]) -> None:
    if waiting is None:
        work()
    else:
        waiting.append(work)


def now() -> None:
    """Does what waits."""
    while waiting:
        waiting.pop()()
