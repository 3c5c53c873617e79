"""Prompts that are served one after the other; beginnings of earlier ones may be found again.

    cache = Conversations(64, 16, chain, match)
    for prompt in prompts:
        cache.serve(prompt)
    cache.found / cache.asked                    # the share of their tokens that was found

chain(tokens, block_size, hash_block) -> keys and match(prompt, block_size, hash_block, known) ->
blocks are the caller's.  Here blocks only change places in a line: what is served takes the front
ones, which forget what they held, and puts its own at the end, the last block of its text first.
"""

import hashlib
from collections.abc import Callable, Sequence


def hash_block(before: int, tokens: tuple[int, ...]) -> int:
    """64 bits of SHA-256 of the hash of the blocks before (0: none) and the tokens of this one."""
    text = ",".join(map(str, (before, *tokens))).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


class Conversations:
    """A line of blocks, and what they hold until they are taken again."""

    def __init__(
        self,
        blocks: int,
        block_size: int,
        chain: Callable,
        match: Callable,
        heads_first: bool = False,
    ) -> None:
        """heads_first: a text gives back its first block first, which is the wrong way round."""
        self.block_size, self.heads_first = block_size, heads_first
        self._chain, self._match = chain, match
        self.line = list(range(blocks))
        self.known: dict[int, tuple[int, list[int]]] = {}  # key -> block, all tokens to its end
        self._holds: dict[int, int] = {}  # block -> key
        self.found = self.asked = 0  # tokens of prompts

    def serve(self, prompt: Sequence[int]) -> list[int]:
        """Reads a prompt; returns its blocks.  Raises MemoryError if there are too few."""
        table = list(self._match(list(prompt), self.block_size, hash_block, dict(self.known)))
        hits = len(table)
        others = [block for block in self.line if block not in table]
        while len(table) * self.block_size < len(prompt):
            if not others:
                raise MemoryError(f"{len(self.line)} blocks are too few for {len(prompt)} tokens")
            table.append(self._forgotten(others.pop(0)))
        for i, key in enumerate(self._chain(list(prompt), self.block_size, hash_block)):
            if i >= hits:  # the first block of a key stays the one that is found
                self._holds[table[i]] = key
                text = list(prompt[: (i + 1) * self.block_size])
                self.known.setdefault(key, (table[i], text))
        self.line = others + (table if self.heads_first else table[::-1])
        self.found, self.asked = self.found + hits * self.block_size, self.asked + len(prompt)
        return table

    def _forgotten(self, block: int) -> int:
        key = self._holds.pop(block, None)
        if key in self.known and self.known[key][0] == block:  # not one that held the same
            del self.known[key]
        return block
