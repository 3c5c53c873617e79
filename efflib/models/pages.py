"""A key and value cache in blocks, for the model: tables and slots are somebody else's.

    cache = Pages(64, 5, sequences, slots_of)
    with reading_pages(model, cache, attention):
        logits = model(prompt, cache=cache)          # then `cache.reorder`, and one token at a time

`sequences` keeps the tables (append, fork, free, table, length); slots_of(table, positions,
block_size) says into which row a key is written, and where it is read.  `efflib.models.paged_cache`
is the same with the course's own tables.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from efflib.checks import expect_whole, expect_within
from efflib.models.cache import expect_entry
from efflib.models.llama import AttentionFn, Llama


class Tables(Protocol):
    """What a cache in blocks needs to know of its sequences."""

    def append(self, name: int, tokens: int) -> list[tuple[int, int]]: ...

    def fork(self, name: int, child: int) -> None: ...

    def free(self, name: int) -> None: ...

    def table(self, name: int) -> list[int]: ...

    def length(self, name: int) -> int: ...


class Pages:
    """The keys and values of a batch whose sequences are equally long, in shared blocks."""

    def __init__(
        self,
        blocks: int,
        block_size: int,
        sequences: Tables,
        slots_of: Callable[[list[int], Tensor, int], Tensor],
    ) -> None:
        expect_whole(1, blocks=blocks, block_size=block_size)
        self.blocks, self.block_size, self.sequences = blocks, block_size, sequences
        self._slots_of = slots_of
        self._pages: list[tuple[Tensor, Tensor]] = []  # per layer [blocks, block_size, Hkv, d]
        self._held: list[Tensor] = []  # per layer, what came first: to check against
        self._slots = torch.zeros(0, 0, dtype=torch.int64)  # of all tokens, [B, S]
        self._names: list[int] = []  # of the rows of the batch
        self._next = 0
        self.copied = 0  # blocks

    @property
    def length(self) -> int:
        """How many tokens have been seen: the position of the next one."""
        return self.sequences.length(self._names[0]) if self._names else 0

    @property
    def tables(self) -> list[list[int]]:
        """The blocks of every sequence."""
        return [self.sequences.table(name) for name in self._names]

    def pages(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, [blocks, block_size, Hkv, d] each."""
        return self._pages[layer]

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes T new keys and values [B, Hkv, T, d]; returns all of them [B, Hkv, S + T, d]."""
        expect_entry(layer, self._held, k, v)
        if layer == 0:
            self._grow(k.shape[0], k.shape[2])
        if layer == len(self._pages):
            shape = (self.blocks, self.block_size, k.shape[1], k.shape[3])
            self._pages.append((k.new_zeros(shape), v.new_zeros(shape)))
            self._held.append(k)
        gathered = []
        for pages, new in zip(self._pages[layer], (k, v), strict=True):
            rows = pages.flatten(0, 1)  # [slots, Hkv, d], a view
            rows[self._slots[:, -k.shape[2] :]] = new.transpose(1, 2)
            gathered.append(rows[self._slots].transpose(1, 2))
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
                self.copied += 1
                for k, v in self._pages:
                    k[target], v[target] = k[source], v[source]
        positions = torch.arange(self.length)
        slots = [self._slots_of(table, positions, self.block_size) for table in self.tables]
        self._slots = torch.stack(slots)


# of one query q [H, d] over the first `length` keys: (q, k pages, v pages, table, length)
PagedAttentionFn = Callable[[Tensor, Tensor, Tensor, list[int], int], Tensor]  # -> [H, d]


@contextmanager
def reading_pages(model: Llama, cache: Pages, attention: PagedAttentionFn) -> Iterator[None]:
    """Inside, single tokens attend to the blocks where they lie; prompts as before.

    cache: has `length`, `tables` and `pages(layer)`.
    """
    before = [layer.self_attn.attention for layer in model.model.layers]

    def paged(number: int, dense: AttentionFn) -> AttentionFn:
        def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            if q.shape[2] > 1:
                return dense(q, k, v, mask)
            each = zip(q[:, :, 0], cache.tables, strict=True)
            rows = [attention(x, *cache.pages(number), table, cache.length) for x, table in each]
            return torch.stack(rows).to(q.dtype)[:, :, None]

        return attend

    try:
        for i, layer in enumerate(model.model.layers):
            layer.self_attn.attention = paged(i, before[i])
        yield
    finally:
        for layer, old in zip(model.model.layers, before, strict=True):
            layer.self_attn.attention = old
