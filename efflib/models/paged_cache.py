"""A key and value cache in blocks, for the model: `serving.paged` says where rows lie.

    cache = PagedKVCache(blocks=64, block_size=16)
    logits = model(prompt, cache=cache)              # the same logits as with `cache.KVCache`
    cache.reorder(torch.tensor([0, 0, 0]))           # three samples of one prompt: no row is copied

All layers use one table: a block is block_size rows in every layer.  What the model attends to is
gathered from the blocks in every step, which costs as much as the cache is long.  A kernel reads
the blocks where they lie: `pages`, `block_table` and `lengths` are its arguments.
"""

import torch
from torch import Tensor

from efflib.checks import expect_whole, expect_within
from efflib.models.cache import expect_entry
from efflib.models.pages import Tables
from efflib.serving.paged import PagedSequences


class PagedKVCache:
    """The keys and values of a batch whose sequences are equally long, in shared blocks."""

    def __init__(self, blocks: int, block_size: int, sequences: Tables | None = None) -> None:
        """sequences: who keeps the tables, empty; a `PagedSequences` if None."""
        expect_whole(1, blocks=blocks, block_size=block_size)
        self.blocks, self.block_size = blocks, block_size
        self.sequences = PagedSequences(blocks, block_size) if sequences is None else sequences
        self._pages: list[tuple[Tensor, Tensor]] = []  # per layer [blocks, block_size, Hkv, d]
        self._held: list[Tensor] = []  # per layer, what was returned last: to check against
        self._names: list[int] = []  # of the rows of the batch
        self._next = 0

    @property
    def length(self) -> int:
        """How many tokens have been seen: the position of the next one."""
        return self.sequences.length(self._names[0]) if self._names else 0

    @property
    def lengths(self) -> Tensor:
        """Of every sequence, [B] int32."""
        lengths = [self.sequences.length(name) for name in self._names]
        return torch.tensor(lengths, dtype=torch.int32)

    @property
    def tables(self) -> list[list[int]]:
        """The blocks of every sequence."""
        return [self.sequences.table(name) for name in self._names]

    @property
    def block_table(self) -> Tensor:
        """The same as a tensor, [B, most] int32."""
        return torch.tensor(self.tables, dtype=torch.int32)

    def pages(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, [blocks, block_size, Hkv, d] each."""
        return self._pages[layer]

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add T new keys and values [B, Hkv, T, d]; return all of them [B, Hkv, S + T, d].

        Raises ValueError for shapes that do not fit, OutOfBlocks when the blocks are used up: the
        cache is then of no more use.
        """
        expect_entry(layer, self._held, k, v)
        if layer == 0:
            self._grow(*k.shape[::2])
        if layer == len(self._pages):
            shape = (self.blocks, self.block_size, k.shape[1])
            self._pages.append(tuple(x.new_zeros(*shape, x.shape[3]) for x in (k, v)))
            self._held.append(k)
        start = self.length - k.shape[2]
        gathered = []
        for pages, new in zip(self._pages[layer], (k, v), strict=True):
            rows = pages.flatten(0, 1)  # [slots, Hkv, d], a view
            slots = self._slots()  # [B, S]
            rows[slots[:, start:]] = new.transpose(1, 2)
            gathered.append(rows[slots].transpose(1, 2))
        return gathered[0], gathered[1]

    def reorder(self, rows: Tensor) -> None:
        """Row i of the batch becomes what row ``rows[i]`` was; rows [B'] may repeat and drop.

        Blocks are shared, not copied.  Raises ValueError for rows that are not in the batch.
        """
        expect_within(len(self._names), rows=rows)
        old, self._names = self._names, []
        for row in rows.tolist():
            self.sequences.fork(old[row], self._new_name())
        for name in old:
            self.sequences.free(name)
        self._held = [held[:1].expand(len(rows), -1, -1, -1) for held in self._held]

    def _slots(self) -> Tensor:
        """Where every row of the batch lies, [B, S]."""
        p = torch.arange(self.length)
        return self.block_table[:, p // self.block_size].long() * self.block_size + (
            p % self.block_size
        )

    def _new_name(self) -> int:
        self._next += 1
        self._names.append(self._next)
        return self._next

    def _grow(self, batch: int, tokens: int) -> None:
        """Room for the tokens of every row, after the copies that this needs, in every layer."""
        expect_whole(1, tokens=tokens)
        while len(self._names) < batch:
            self._new_name()
        for name in self._names:
            for source, target in self.sequences.append(name, tokens):
                for k, v in self._pages:
                    k[target], v[target] = k[source], v[source]
