"""Blocks of a cache: which are free, and how many owners the others have.

    free blocks + blocks with an owner = all blocks,      count(b) = owners of b

A block that nobody owns waits in a queue: the one that has been free longest is handed out next.
Until then its contents are still there, so that a prefix cache (`efflib.serving.prefix`) can take
it back: what is handed out next is then what was used least recently.  A sequence gives its blocks
back in reverse order, last block first, because a later block is of no use without the earlier
ones: so tails leave before heads.

Where well-known implementations differ: vLLM's first version took the block that was freed last
(a stack), which is as good where nothing is kept; it also keeps block 0 for padding.
Source: Kwon et al. 2023 (arXiv:2309.06180), sections 4.2 to 4.4.
"""

from collections import OrderedDict
from collections.abc import Sequence

from efflib.checks import expect_whole


class OutOfBlocks(MemoryError):
    """There are fewer free blocks than are needed; nothing was changed."""


def blocks_for(tokens: int, block_size: int) -> int:
    """How many blocks hold so many tokens: ceil(tokens / block_size)."""
    expect_whole(tokens=tokens)
    expect_whole(1, block_size=block_size)
    return -(-tokens // block_size)


class BlockPool:
    """Blocks 0 .. size - 1, all free at first and handed out in this order."""

    def __init__(self, size: int) -> None:
        expect_whole(1, size=size)
        self.size = size
        self._counts = [0] * size
        self._queue = OrderedDict.fromkeys(range(size))  # free blocks, longest free first

    @property
    def free(self) -> int:
        """How many blocks are free."""
        return len(self._queue)

    @property
    def queue(self) -> list[int]:
        """The free blocks in the order in which they will be handed out."""
        return list(self._queue)

    def count(self, block: int) -> int:
        """How many owners a block has.  Raises ValueError for a block that does not exist."""
        if block not in range(self.size):
            raise ValueError(f"block={block!r} must be from 0 to {self.size - 1}")
        return self._counts[block]

    def need(self, blocks: int) -> None:
        """Raises OutOfBlocks unless so many blocks are free."""
        if blocks > self.free:
            raise OutOfBlocks(f"{blocks} blocks are needed, {self.free} of {self.size} are free")

    def take(self) -> int:
        """The block that has been free longest, now with one owner.  Raises OutOfBlocks."""
        self.need(1)
        block, _ = self._queue.popitem(last=False)
        self._counts[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more owner.  Raises ValueError for a block that is free: see `take_back`."""
        if not self.count(block):
            raise ValueError(f"block {block} is free, so it cannot be shared")
        self._counts[block] += 1

    def take_back(self, block: int) -> None:
        """A free block leaves the queue out of turn, for one owner: its contents are still there.

        Raises ValueError for a block that has an owner.
        """
        if self.count(block):
            raise ValueError(f"block {block} has {self._counts[block]} owners: share it")
        del self._queue[block]
        self._counts[block] = 1

    def release(self, block: int) -> None:
        """One owner less; without owners it joins the end of the queue.

        Raises ValueError for a block that is free already.
        """
        if not self.count(block):
            raise ValueError(f"block {block} is free already")
        self._counts[block] -= 1
        if not self._counts[block]:
            self._queue[block] = None

    def release_all(self, table: Sequence[int]) -> None:
        """Releases the blocks of a sequence, last block first.

        Raises ValueError, before anything changes, if one is released more often than it is owned.
        """
        for block in set(table):
            if self.count(block) < table.count(block):
                raise ValueError(f"block {block} has only {self._counts[block]} owners")
        for block in reversed(table):
            self.release(block)
