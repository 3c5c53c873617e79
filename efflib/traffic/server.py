"""A trace served step by step; where the rows of the cache are meanwhile.

The server is the simplest: requests are admitted in their order while the first one that waits
fits; each running request gets one token in a step; memory is counted then; who is done leaves.
Without reservation memory can run out: the request that came last is then put back to the front of
the line, and what it had is computed again.

A trace begins and ends with a memory that is half empty, whatever the allocator.  What an allocator
makes of a memory shows while somebody waits: `Replay.loaded`.

How long a piece is, how many blocks are needed, which block is taken and what kind a row is of are
functions and classes of the caller: `Pieces` and `Blocks` only ask them.
Source: Kwon et al. 2023 (arXiv:2309.06180), sections 2 and 3.1.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from efflib.traffic.traces import Request

Five = tuple[int, int, int, int, int]  # used, reserved, internal, external, free


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


class Pieces:
    """One piece for each request, in the first gap that is long enough; it is never moved."""

    def __init__(
        self,
        size: int,
        policy: str,
        longest: int,
        piece: Callable[[str, int, int, int], int],
        usage: Callable[[list, int, int], Five],
    ) -> None:
        """piece(policy, prompt, output, longest): its rows; usage(pieces, size, wanted)."""
        self.size, self.pieces = size, {}  # request -> (start, stop)
        self.longest = lambda r: piece(policy, r.prompt, r.output, longest)
        self._usage = usage

    def admit(self, i: int, request: Request) -> bool:
        length, taken = self.longest(request), self.pieces.values()
        for start in sorted([0, *(stop for _, stop in taken)]):
            stop = start + length
            if stop <= self.size and all(stop <= a or b <= start for a, b in taken):
                self.pieces[i] = (start, stop)
                return True
        return False

    def grow(self, i: int) -> bool:
        return True

    def leave(self, i: int) -> None:
        del self.pieces[i]

    def usage(self, running: dict[int, int], trace: Sequence[Request], waits: int | None) -> Usage:
        pieces = [(*self.pieces[i], n, trace[i].total) for i, n in running.items()]
        wanted = 0 if waits is None else self.longest(trace[waits])
        return Usage(*self._usage(pieces, self.size, wanted), len(running))


class Blocks:
    """Blocks from a pool, for each request as it needs them, or all of them when it is admitted."""

    def __init__(
        self,
        size: int,
        block_size: int,
        pool_of: Callable,
        needed: Callable[[int, int], int],
        usage: Callable[[list, int, int], Five],
        keep: int = 0,
        at_once: bool = False,
    ) -> None:
        """pool_of(blocks): who hands them out; needed(tokens, block_size): how many hold them.

        usage(requests, block_size, blocks).  keep: so many blocks stay free when a request is
        admitted beside others (a watermark); at_once: it gets the blocks of its whole answer then.
        """
        self.block_size, self.blocks = block_size, size // block_size
        self.size = self.blocks * block_size
        self.pool, self.tables = pool_of(self.blocks), {}  # request -> its blocks
        self.tokens: dict[int, int] = {}
        self._needed, self._usage, self.keep, self.at_once = needed, usage, keep, at_once

    def needs(self, tokens: int) -> int:
        """How many blocks hold so many tokens."""
        return self._needed(tokens, self.block_size)

    def longest(self, request: Request) -> int:
        return self.needs(request.total) * self.block_size

    def admit(self, i: int, request: Request) -> bool:
        # and for its first token, or it might be put back in this very step
        blocks = self.needs(request.total if self.at_once else request.prompt + 1)
        if blocks + (self.keep if self.tables else 0) > self.pool.free():
            return False
        first = blocks if self.at_once else self.needs(request.prompt)
        self.tables[i] = [self.pool.take() for _ in range(first)]
        self.tokens[i] = request.prompt
        return True

    def grow(self, i: int) -> bool:
        if self.tokens[i] == len(self.tables[i]) * self.block_size:  # all of them are full
            if not self.pool.free():
                return False
            self.tables[i].append(self.pool.take())
        self.tokens[i] += 1
        return True

    def leave(self, i: int) -> None:
        del self.tokens[i]
        for block in self.tables.pop(i):
            self.pool.release(block)

    def usage(self, running: dict[int, int], trace: Sequence[Request], waits: int | None) -> Usage:
        now = [(n, trace[i].total) for i, n in running.items()]
        if not self.at_once:
            return Usage(*self._usage(now, self.block_size, self.blocks), len(running))
        # as at its end; what is not there yet is reserved
        ends = [(total, total) for _, total in now]
        used, reserved, *others = self._usage(ends, self.block_size, self.blocks)
        later = sum(total - n for n, total in now)
        return Usage(used - later, reserved + later, *others, len(running))


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


def replay(trace: Sequence[Request], memory: Memory, overtaking: bool = False) -> Replay:
    """Serves a trace to its end.  Raises ValueError for a request that does not fit alone.

    overtaking: whoever waits and fits is admitted, also before others that do not fit.
    """
    for i, request in enumerate(trace):
        if memory.longest(request) > memory.size:
            raise ValueError(f"request {i} {tuple(request)} does not fit into {memory.size} rows")
    waiting = deque(sorted(range(len(trace)), key=lambda i: trace[i].arrival))
    running: dict[int, int] = {}  # in the order of admission
    have: dict[int, int] = {}  # tokens of the requests that were put back
    usage, waited, step, preempted, again = [], [], 0, 0, 0
    while waiting or running:
        for i in [i for i in waiting if trace[i].arrival <= step]:
            tokens = have.get(i, trace[i].prompt)
            if memory.admit(i, Request(step, tokens, trace[i].total - tokens)):
                waiting.remove(i)
                running[i] = tokens
            elif not overtaking:
                break
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
