"""Gates: who of the line a scheduler gets to see.  Static and dynamic batches are nothing else.

A gate is told how many run, how many wait, for how many seconds the first of them has, and whether
more will come; it says for how many more seconds it stays closed (inf: until something changes).
"""

import math
from collections.abc import Callable

Gate = Callable[[int, int, float, bool], float]


def static(size: int) -> Gate:
    """Batches of `size`: the next one begins when the last one has ended and is full.

    When nobody is left to come, a batch need not be full.
    """
    return lambda running, waiting, waited, more: (
        0.0 if not running and (waiting >= size or not more) else math.inf
    )


def dynamic(size: int, timeout: float) -> Gate:
    """As `static`, but a batch also begins when its first request has waited `timeout` seconds."""

    def gate(running: int, waiting: int, waited: float, more: bool) -> float:
        if running:
            return math.inf
        ready = waiting >= size or not more or waited >= timeout * (1 - 1e-9)
        return 0.0 if ready else timeout - waited

    return gate
