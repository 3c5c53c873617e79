"""Where the memory of a cache goes, step by step, on one trace of requests.

Every row is one of these, at every step (integers, and their sum is all there is):

    used       holds keys and values of a token
    reserved   belongs to a request, which will use it later        (reservation)
    internal   belongs to a request, which will never use it        (internal fragmentation)
    external   free, but the request that waits needs a longer piece than any gap, although the
               gaps together are long enough                        (external fragmentation)
    free       otherwise: nobody waits, or even all gaps together are too short

With pieces, used + reserved + internal is the piece.  With blocks it is the blocks of a request: at
most block_size - 1 rows beside the used ones, and external is 0 because every free block fits.

The server is the simplest: requests are admitted in their order while the first one that waits
fits; each running request gets one token in a step; memory is counted then; who is done leaves.
Without reservation, paged memory can run out: the request that came last is then put back to the
front of the line, and what it had is computed again.

A trace begins and ends with a memory that is half empty, whatever the allocator.  What an allocator
makes of a memory shows while somebody waits: `Replay.loaded`.
Source of the three kinds of waste: Kwon et al. 2023 (arXiv:2309.06180), sections 2 and 3.1.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from efflib.checks import expect_whole
from efflib.serving.blocks import blocks_for
from efflib.serving.contiguous import Arena, piece
from efflib.serving.paged import PagedSequences
from efflib.serving.traces import Request


class Usage(NamedTuple):
    """Rows of the cache at one step, and how many requests run."""

    used: int
    reserved: int
    internal: int
    external: int
    free: int
    running: int


class Memory(Protocol):
    """A cache's bookkeeping, as the server below uses it; requests are known by their number."""

    size: int

    def longest(self, request: Request) -> int:
        """How many rows the request needs at its end, alone."""
        ...

    def admit(self, i: int, request: Request) -> bool:
        """Room for the prompt, one token, and whatever the policy reserves, if there is."""
        ...

    def grow(self, i: int) -> bool:
        """Room for one token more, if there is."""
        ...

    def leave(self, i: int) -> None: ...

    def usage(self, running: dict[int, int], trace: Sequence[Request], waits: int | None) -> Usage:
        """running: request -> its tokens; waits: the request that is the next in line, or None."""
        ...


class ContiguousMemory:
    """One piece for each request: see `efflib.serving.contiguous`."""

    def __init__(self, size: int, policy: str, longest: int) -> None:
        self.size, self._policy, self._longest = size, policy, longest
        self.arena = Arena(size)

    def longest(self, request: Request) -> int:
        return piece(request, self._policy, self._longest)

    def admit(self, i: int, request: Request) -> bool:
        return self.arena.place(i, self.longest(request))

    def grow(self, i: int) -> bool:
        return True

    def leave(self, i: int) -> None:
        self.arena.free(i)

    def usage(self, running: dict[int, int], trace: Sequence[Request], waits: int | None) -> Usage:
        pieces = {i: stop - start for i, (start, stop) in self.arena.pieces.items()}
        used = sum(running.values())
        reserved = sum(trace[i].total - n for i, n in running.items())
        free = self.size - sum(pieces.values())
        wanted = self.longest(trace[waits]) if waits is not None else free + 1
        external = free if wanted <= free else 0  # it fits in sum, and still waits
        internal = sum(pieces.values()) - used - reserved
        return Usage(used, reserved, internal, external, free - external, len(running))


class PagedMemory:
    """Blocks as they are needed: see `efflib.serving.paged`."""

    def __init__(self, size: int, block_size: int) -> None:
        expect_whole(1, block_size=block_size)
        self.sequences = PagedSequences(size // block_size, block_size)
        self.size = size // block_size * block_size

    def longest(self, request: Request) -> int:
        block_size = self.sequences.block_size
        return blocks_for(request.total, block_size) * block_size

    def admit(self, i: int, request: Request) -> bool:
        # and for its first token, or it might be put back in this very step
        fits = self.sequences.missing(i, request.prompt + 1) <= self.sequences.pool.free
        if fits:
            self.sequences.append(i, request.prompt)
        return fits

    def grow(self, i: int) -> bool:
        fits = self.sequences.missing(i, 1) <= self.sequences.pool.free
        if fits:
            self.sequences.append(i, 1)
        return fits

    def leave(self, i: int) -> None:
        self.sequences.free(i)

    def usage(self, running: dict[int, int], trace: Sequence[Request], waits: int | None) -> Usage:
        size, used, reserved, own = self.sequences.block_size, 0, 0, 0
        for i, n in running.items():
            rows = len(self.sequences.table(i)) * size
            own, used = own + rows, used + n
            reserved += min(rows, trace[i].total) - n
        free = self.sequences.pool.free * size
        return Usage(used, reserved, own - used - reserved, 0, free, len(running))


class Replay(NamedTuple):
    """What a trace did to a memory."""

    usage: list[Usage]  # of every step in which something ran
    waited: list[bool]  # whether a request waited then
    steps: int
    preempted: int  # times that a request was put back
    computed_again: int  # its tokens

    @property
    def loaded(self) -> list[Usage]:
        """The steps in which a request waited: under load, more memory would have been used."""
        return [u for u, waited in zip(self.usage, self.waited, strict=True) if waited]


def replay(trace: Sequence[Request], memory: Memory) -> Replay:
    """Serves a trace to its end.  Raises ValueError for a request that does not fit alone."""
    for i, request in enumerate(trace):
        if memory.longest(request) > memory.size:
            raise ValueError(f"request {i} {tuple(request)} does not fit into {memory.size} rows")
    waiting = deque(sorted(range(len(trace)), key=lambda i: trace[i].arrival))
    running: dict[int, int] = {}  # in the order of admission
    have: dict[int, int] = {}  # tokens of the requests that were put back
    usage, waited, step, preempted, again = [], [], 0, 0, 0
    while waiting or running:
        while waiting and trace[waiting[0]].arrival <= step:
            i = waiting[0]
            tokens = have.get(i, trace[i].prompt)
            if not memory.admit(i, Request(step, tokens, trace[i].total - tokens)):
                break
            running[waiting.popleft()] = tokens
        for i in list(running):
            while i in running and not memory.grow(i):
                last = next(reversed(running))
                have[last] = running.pop(last)
                memory.leave(last)
                waiting.appendleft(last)
                preempted, again = preempted + 1, again + have[last]
            if i in running:
                running[i] += 1
        if running:
            waits = waiting[0] if waiting and trace[waiting[0]].arrival <= step else None
            usage.append(memory.usage(running, trace, waits))
            waited.append(waits is not None)
        for i in [i for i, n in running.items() if n == trace[i].total]:
            memory.leave(i)
            del running[i]
        step += 1
    return Replay(usage, waited, step, preempted, again)


def mean_share(usage: Sequence[Usage], size: int) -> dict[str, float]:
    """The share of each kind of row in all rows, averaged over steps."""
    if not usage:
        raise ValueError("usage is empty: nothing ran, or nobody waited")
    names = Usage._fields[:-1]
    return {name: sum(getattr(u, name) for u in usage) / (size * len(usage)) for name in names}
