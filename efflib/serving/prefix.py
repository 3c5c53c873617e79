"""Prefix reuse: sequences that begin with the same tokens share the blocks of the beginning.

    h_i = hash(h_{i-1}, tokens of block i)         so that h_i stands for all tokens up to block i

A full block never changes, so it can be found by its hash, as long as nobody has overwritten it:
also after its sequence has ended, while the block waits in the queue of free ones.  The queue hands
out what has been free longest: blocks are evicted least recently used first, and only then does the
hash forget them.  A request walks along its prompt, and computes from the first block on that is
not found.

- Only full blocks are found.  No copy on write is needed for them.
- At least one token is always computed: its output is what the next token is drawn from.  So a
  prompt of n tokens finds at most (n - 1) // block_size blocks.
- A hash is no proof: two texts can have one.  A found block is used only if its tokens, and those
  of all blocks before it, are the ones that were asked for.
- A block that is computed again, although one with the same tokens is known, stays a duplicate: a
  table never changes under a running sequence.

Where well-known implementations differ: nano-vllm (xxhash64) compares the tokens of the block and
trusts the hash for those before it; vLLM (sha256) trusts it for all, and adds to the hash what else
decides about keys and values (the LoRA adapter, images); SGLang keeps a radix tree of tokens in
place of hashes and shares down to the token.
Sources: Kwon et al. 2023 (arXiv:2309.06180), section 4.4; Zheng et al. 2023 (arXiv:2312.07104).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from efflib.serving.blocks import BlockPool, blocks_for
from efflib.serving.paged import Copy, PagedSequences
from efflib.traffic.conversations import hash_block

HashBlock = Callable[[int, tuple[int, ...]], int]


class Contents(NamedTuple):
    """What a full block holds: its tokens, and the contents of the block before it (or None)."""

    key: int  # its chained hash
    tokens: tuple[int, ...]
    before: Contents | None


def same(a: Contents | None, b: Contents | None) -> bool:
    """Whether two blocks hold the same tokens after the same tokens."""
    while a is not b:
        if a is None or b is None or a.tokens != b.tokens:
            return False
        a, b = a.before, b.before
    return True


def text_of(contents: Contents | None) -> list[int]:
    """All tokens up to the end of a block."""
    parts = []
    while contents is not None:
        parts.append(contents.tokens)
        contents = contents.before
    return [token for part in reversed(parts) for token in part]


class CachingPool(BlockPool):
    """A pool that remembers what full blocks hold until they are handed out again."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.contents: dict[int, Contents] = {}  # of blocks, also duplicates
        self.found: dict[int, int] = {}  # hash -> block

    def take(self) -> int:
        """As in `BlockPool`; what the block held is forgotten."""
        block = super().take()
        old = self.contents.pop(block, None)
        if old is not None and self.found.get(old.key) == block:  # not a duplicate
            del self.found[old.key]
        return block

    def remember(self, block: int, contents: Contents) -> None:
        """The block is full.  The first block of a hash stays the one that is found."""
        self.contents[block] = contents
        self.found.setdefault(contents.key, block)

    def find(self, contents: Contents) -> int | None:
        """The block that holds this after the same blocks, or None."""
        block = self.found.get(contents.key)
        known = block is not None and same(self.contents[block], contents)
        return block if known else None

    def known(self) -> dict[int, tuple[int, list[int]]]:
        """{hash: (block, all tokens up to the end of it)} of the blocks that can be found."""
        return {key: (block, text_of(self.contents[block])) for key, block in self.found.items()}


class PrefixSequences(PagedSequences):
    """Sequences of token ids; what they have in common at the beginning is stored once.

    `start` begins a sequence, `extend` adds what it generates; `append`, which knows no tokens,
    is not to be used.  hits, asked: tokens of prompts that were found, and all.
    """

    def __init__(self, blocks: int, block_size: int, hash_block: HashBlock = hash_block) -> None:
        super().__init__(blocks, block_size)
        self._hash = hash_block
        self._tokens: dict[Hashable, list[int]] = {}
        self.hits = self.asked = 0

    def _new_pool(self, blocks: int) -> CachingPool:
        return CachingPool(blocks)

    def tokens(self, name: Hashable) -> list[int]:
        """The tokens of a sequence."""
        return list(self._tokens[self._known(name)])

    def match(self, prompt: Sequence[int]) -> list[int]:
        """The blocks that hold the beginning of a prompt, at most all but its last token."""
        found, before = [], None
        for i in range((len(prompt) - 1) // self.block_size):
            before = self._contents(prompt, i, before)
            block = self.pool.find(before)
            if block is None:
                break
            found.append(block)
        return found

    def start(self, name: Hashable, prompt: Sequence[int]) -> int:
        """Begins a sequence; returns how many tokens of its prompt need not be computed.

        Raises OutOfBlocks, or ValueError for an empty prompt and a name that exists.
        """
        if not prompt or name in self._lengths:
            raise ValueError(f"sequence {name!r} must be new and its prompt not empty")
        found = self.match(prompt)
        waiting = sum(self.pool.count(block) == 0 for block in found)  # in the queue: free as well
        self.pool.need(waiting + blocks_for(len(prompt), self.block_size) - len(found))
        for block in found:
            (self.pool.share if self.pool.count(block) else self.pool.take_back)(block)
        known = len(found) * self.block_size
        self._tables[name], self._lengths[name] = found, known
        self._tokens[name] = list(prompt[:known])
        self.extend(name, prompt[known:])
        self.hits, self.asked = self.hits + known, self.asked + len(prompt)
        return known

    def extend(self, name: Hashable, tokens: Sequence[int]) -> list[Copy]:
        """Adds computed tokens; blocks that they fill can be found from now on.

        Returns the blocks to copy before writing, as `append`.  Raises OutOfBlocks.
        """
        full = len(self._tokens[self._known(name)]) // self.block_size
        copies = self.append(name, len(tokens))
        self._tokens[name] += tokens
        table, text = self._tables[name], self._tokens[name]
        before = self.pool.contents[table[full - 1]] if full else None
        for i in range(full, len(text) // self.block_size):
            before = self._contents(text, i, before)
            self.pool.remember(table[i], before)
        return copies

    def fork(self, name: Hashable, child: Hashable) -> None:
        """As in `PagedSequences`."""
        super().fork(name, child)
        self._tokens[child] = list(self._tokens[name])

    def free(self, name: Hashable) -> None:
        """As in `PagedSequences`.  Full blocks can be found until they are handed out again."""
        super().free(name)
        del self._tokens[name]

    def _contents(self, text: Sequence[int], i: int, before: Contents | None) -> Contents:
        """What block i of a text holds."""
        tokens = tuple(text[i * self.block_size : (i + 1) * self.block_size])
        return Contents(self._hash(before.key if before else 0, tokens), tokens, before)
