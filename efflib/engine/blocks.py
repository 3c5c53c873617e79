"""Keys and values of all requests, in blocks of one memory.

    pages of a layer [blocks, block, Hkv, d];   position p lies in  table[p // block], row p % block

A request grows by blocks, and is rolled back when proposals were refused: blocks behind its new end
are given back.  Full blocks are remembered by their tokens, but only once these are certain
(`settle`): so a beginning that is already there, of somebody who runs or has ended, is not computed
again (`start`).  `efflib.serving.prefix` says how a beginning is found; its sequences learn their
tokens when room is made, here that would be before they are computed.

A request that may not share is one whose block is as long as the longest request: with
block = longest every table has one entry, and this is memory in one piece, reserved at the start.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from efflib.checks import expect_whole
from efflib.models.llama import Llama
from efflib.serving.blocks import blocks_for
from efflib.serving.prefix import CachingPool, Contents
from efflib.traffic.conversations import hash_block


class BlockCache:
    """Block tables by name, and the pages that they point into."""

    def __init__(self, model: Llama, blocks: int, block: int) -> None:
        expect_whole(1, blocks=blocks, block=block)
        c, weight = model.config, model.model.embed_tokens.weight
        shape = (blocks, block, c.num_key_value_heads, c.head_dim)
        self.block, self.pool = block, CachingPool(blocks)
        self.pages = [
            (weight.new_zeros(shape), weight.new_zeros(shape)) for _ in range(c.num_hidden_layers)
        ]
        self.tables: dict[int, list[int]] = {}
        self._settled: dict[int, list[Contents]] = {}  # of the full blocks of a table

    @property
    def free(self) -> int:
        """Blocks that belong to nobody; some may still hold what somebody will ask for."""
        return self.pool.free

    @property
    def bytes(self) -> int:
        """Of all pages."""
        return sum(x.numel() * x.element_size() for pair in self.pages for x in pair)

    def start(self, name: int, text: Sequence[int]) -> int:
        """Begins a table; how many tokens of the text are there already.

        At least one token is left to compute.  Raises ValueError for a name that exists.
        """
        if name in self.tables:
            raise ValueError(f"request {name} has a table already")
        table, settled = [], []
        for i in range((len(text) - 1) // self.block):
            contents = self._contents(text, i, settled)
            found = self.pool.find(contents)
            if found is None:
                break
            (self.pool.share if self.pool.count(found) else self.pool.take_back)(found)
            table.append(found)
            settled.append(contents)
        self.tables[name], self._settled[name] = table, settled
        return len(table) * self.block

    def grow(self, name: int, length: int) -> None:
        """Room for so many tokens in all.  Raises OutOfBlocks, and then nothing has changed."""
        table = self.tables[name]
        self.pool.need(blocks_for(length, self.block) - len(table))
        while len(table) * self.block < length:
            table.append(self.pool.take())

    def roll_back(self, name: int, length: int) -> None:
        """Gives back the blocks that the first `length` tokens do not need."""
        table, kept = self.tables[name], blocks_for(length, self.block)
        if kept < len(self._settled[name]):
            raise ValueError(f"{length} tokens end before a block that was settled")
        self.pool.release_all(table[kept:])
        del table[kept:]

    def settle(self, name: int, text: Sequence[int], cached: int) -> None:
        """The first `cached` tokens are computed and certain: their full blocks can be found."""
        settled, table = self._settled[name], self.tables[name]
        for i in range(len(settled), cached // self.block):
            settled.append(self._contents(text, i, settled))
            self.pool.remember(table[i], settled[i])

    def end(self, name: int) -> None:
        """The request goes; what it leaves is forgotten only when its blocks are taken."""
        self.pool.release_all(self.tables.pop(name))
        del self._settled[name]

    def slots(self, name: int, start: int, stop: int) -> list[int]:
        """The rows of positions start .. stop - 1, of all blocks in one line."""
        table, block = self.tables[name], self.block
        return [table[p // block] * block + p % block for p in range(start, stop)]

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Rows k and v [T, Hkv, d] into slots [T]."""
        for pages, new in zip(self.pages[layer], (k, v), strict=True):
            pages.flatten(0, 1).index_copy_(0, slots, new)

    def read(self, layer: int, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, Hkv, S, d] of block numbers [B, n], S = n block."""
        rows, flat = len(blocks), blocks.flatten()
        k, v = (
            torch.index_select(pages, 0, flat).view(rows, -1, *pages.shape[2:]).transpose(1, 2)
            for pages in self.pages[layer]
        )
        return k, v

    def _contents(self, text: Sequence[int], i: int, before: Sequence[Contents]) -> Contents:
        tokens = tuple(text[i * self.block : (i + 1) * self.block])
        last = before[-1] if before else None
        return Contents(hash_block(last.key if last else 0, tokens), tokens, last)
