"""StreamingLLM in blocks: the first block stays, those that the window has left are used again.

    block_size 4, sinks 2, size 8; the text is at token 14

    table   0: 3   2: 1   3: 4          entry p // 4 of token p; entry 1 was released
    rows    a b c d   i j k l   m n          the query of n sees  a b  and  i j k l m n

A token is never moved.  Its block is found by its number in the text, as in `serving.paged`, so
the table has a hole where blocks were released: they hold no sink, and their last token has left
the window.  Single tokens of a block that are no longer seen (c and d above) are left out when keys
are gathered.  So many blocks are held at most, however long the text:

    ceil(sinks / block_size) + ceil((size - sinks - 1) / block_size) + 1

Positions are places in the cache (see `streaming`): blocks hold keys that are not turned, and each
is turned by its place when it is read.  That costs a turn of all keys for each token, which a
kernel does on the way; `streaming.Slots` turns each once.  The results are equal.
Source: Xiao et al. 2023 (arXiv:2309.17453), section 3.2; Kwon et al. 2023 (arXiv:2309.06180).
"""

import torch
from torch import Tensor

from efflib.checks import expect_whole
from efflib.models.cache import expect_entry
from efflib.models.rotary import RopeScaling, rotate
from efflib.serving.blocks import BlockPool, blocks_for


class PagedStreamingCache:
    """The keys and values of the first `sinks` tokens and the most recent `size` - sinks.

    For a batch whose rows are equally long: they share one table.  Tokens appended together see
    each other and at most size - T older ones, as in `StreamingCache`; here T may not exceed
    size - sinks.
    """

    keeps_raw_keys = True

    def __init__(
        self,
        size: int,
        sinks: int,
        block_size: int,
        theta: float,
        scaling: RopeScaling | None = None,
    ) -> None:
        expect_whole(1, size=size, block_size=block_size)
        expect_whole(sinks=sinks)
        if sinks >= size:
            raise ValueError(f"size={size} must exceed sinks={sinks}")
        if not theta > 0:
            raise ValueError(f"theta={theta} must be positive")
        self.size, self.sinks, self.block_size = size, sinks, block_size
        self.theta, self.scaling = theta, scaling
        self.pool = BlockPool(
            blocks_for(sinks, block_size) + blocks_for(size - sinks - 1, block_size) + 1
        )
        self.table: dict[int, int] = {}  # {token number // block_size: block}, those that are held
        self.pages: list[tuple[Tensor, Tensor]] = []  # per layer [slots, B, Hkv, d]
        self._held: list[Tensor] = []  # per layer, what came last: to check against
        self.seen = self.oldest = 0  # of the text; the oldest token of the window
        self._first = 0  # the position of the oldest kept key

    @property
    def buffers(self) -> list[Tensor]:
        """Every tensor that is held, with the room in it that is not used."""
        return [x for pages in self.pages for x in pages]

    @property
    def length(self) -> int:
        """How many tokens are kept."""
        return len(self.numbers())

    @property
    def next_position(self) -> int:
        """Where the next query stands: behind all that is kept now."""
        return self.length

    def numbers(self) -> list[int]:
        """The tokens that are kept, by their numbers in the text."""
        return [*range(min(self.sinks, self.oldest)), *range(self.oldest, self.seen)]

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add k and v [B, Hkv, T, d]; return all that is kept, keys turned by their places.

        Raises ValueError as `cache.expect_entry`, and for more tokens than the window has.
        """
        expect_entry(layer, self._held, k, v)
        if layer == 0:
            self._grow(k.shape[2])
        if layer == len(self.pages):
            slots = self.pool.size * self.block_size
            pages = (x.new_zeros(slots, *x.shape[:2], x.shape[3]) for x in (k, v))
            self.pages.append(tuple(pages))
            self._held.append(k[:, :, :0])
        slots = self._slots()
        for pages, new in zip(self.pages[layer], (k, v), strict=True):
            pages[slots[len(slots) - k.shape[2] :]] = new.permute(2, 0, 1, 3)
        k, v = (pages[slots].permute(1, 2, 0, 3) for pages in self.pages[layer])
        places = self._first + torch.arange(len(slots))
        return rotate(k, places, self.theta, self.scaling), v  # [B, Hkv, S, d]

    def _slots(self) -> Tensor:
        """Where the kept tokens lie, [S]."""
        size = self.block_size
        return torch.tensor([self.table[p // size] * size + p % size for p in self.numbers()])

    def _grow(self, new: int) -> None:
        """Let the window move on, release what it has left, take blocks for the new tokens."""
        if new > self.size - self.sinks:
            most = self.size - self.sinks
            raise ValueError(f"{new} tokens at once; size={self.size} has room for {most}")
        before = self.length
        apart = min(self.sinks, self.seen)  # sinks that are there
        others = max(0, self.size - new - apart)  # older tokens that may stay beside them
        if self.seen - max(self.oldest, apart) > others:
            self.oldest = self.seen - others
        self._first = before - self.length  # the new ones stand where the query was told
        pinned = blocks_for(self.sinks, self.block_size)
        left = [i for i in self.table if pinned <= i < self.oldest // self.block_size]
        for i in left:
            self.pool.release(self.table.pop(i))
        for i in range(self.seen // self.block_size, blocks_for(self.seen + new, self.block_size)):
            if i not in self.table:
                self.table[i] = self.pool.take()
        self.seen += new
