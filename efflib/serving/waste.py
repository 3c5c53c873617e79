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

The server is `efflib.traffic.server.replay`.
Source of the three kinds of waste: Kwon et al. 2023 (arXiv:2309.06180), sections 2 and 3.1.
"""

from collections.abc import Sequence

from efflib.checks import expect_whole
from efflib.serving.blocks import blocks_for
from efflib.serving.contiguous import Arena, piece
from efflib.serving.paged import PagedSequences
from efflib.traffic.server import Usage
from efflib.traffic.traces import Request


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
