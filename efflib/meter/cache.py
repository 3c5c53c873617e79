"""What reaches device memory behind the L2 cache: a replay of a metered trace.

The model: one cache for the whole GPU, fully associative, with sectors of 32 bytes, least recently
used out first; `resident` programs run at a time, each makes one access in turn, and the next
program starts when one has ended.  A read that misses fetches the sector; a write only marks it
(kernels write whole sectors), and marked sectors are written to memory when they leave the cache,
at the latest at the end.

Real caches are set-associative and hashed, B200 and H100 have two halves, and programs drift
apart: the replay shows what an order of programs can gain, for instance that of a swizzled
matmul, and is no prediction to the percent.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from efflib.meter.traffic import SECTOR

if TYPE_CHECKING:
    from efflib.meter.meter import Meter


class Replay(NamedTuple):
    """Bytes, in whole sectors."""

    requested: int  # by programs from the cache
    fetched: int  # from device memory
    written: int  # to device memory

    @property
    def hit_rate(self) -> float:
        """Part of the requested bytes that needed no fetch."""
        return 1 - self.fetched / max(self.requested, 1)


class _Cache:
    """LRU over sectors; each is clean (False) or has to be written back (True)."""

    def __init__(self, sectors: int):
        self.sectors = sectors
        self.content: OrderedDict[int, bool] = OrderedDict()
        self.fetched = self.written = 0

    def access(self, sector: int, write: bool) -> None:
        known = sector in self.content
        if not known and not write:
            self.fetched += 1
        self.content[sector] = write or (known and self.content[sector])
        self.content.move_to_end(sector)
        if len(self.content) > self.sectors:
            _, marked = self.content.popitem(last=False)
            self.written += marked

    def flush(self) -> None:
        self.written += sum(self.content.values())
        self.content.clear()


def in_turn(programs: list[list], resident: int) -> Iterator:
    """The items of all programs: `resident` at a time, one item of each in turn."""
    waiting = deque(programs)
    running: deque[Iterator] = deque()
    while waiting or running:
        while waiting and len(running) < resident:
            running.append(iter(waiting.popleft()))
        program = running.popleft()
        for item in program:  # one item, if there is one left
            yield item
            running.append(program)
            break


def replay(m: Meter, l2_bytes: int, resident: int) -> Replay:
    """Run the accesses of `Meter(trace=True)` through a cache of l2_bytes.

    resident: programs that run at a time, SMs x programs that fit on one.  Launches follow one
    another and find the cache as the one before left it.  Raises ValueError if the meter kept no
    trace, or for a cache without a sector or no program.
    """
    if m.trace is None:
        raise ValueError("this meter kept no trace: use Meter(trace=True)")
    if l2_bytes < SECTOR or resident < 1:
        raise ValueError(f"need l2_bytes >= {SECTOR} and resident >= 1: {l2_bytes}, {resident}")
    cache, requested = _Cache(l2_bytes // SECTOR), 0
    for launch in range(len(m.launches)):
        programs: dict[int, list] = {}
        for number, program, kind, sectors in m.trace:
            if number == launch:
                programs.setdefault(program, []).append((kind, sectors))
        for kind, sectors in in_turn(list(programs.values()), resident):
            requested += len(sectors)
            for sector in sectors.tolist():
                cache.access(sector, kind == "write")
    cache.flush()
    return Replay(requested * SECTOR, cache.fetched * SECTOR, cache.written * SECTOR)
