"""PagedAttention's memory: the keys and values of a sequence lie in blocks, found by its table.

    position p is row  p % block_size  of block  table[p // block_size]
    slot of p      =   table[p // block_size] * block_size + p % block_size

    blocks 0 .. 7 of 4 rows; "Alan Turing is a | computer scientist and mathematician | renowned"
    table   7 1 4          the blocks in order of the text, wherever they lie
    rows    4 4 1          only the last may be partly filled: at most block_size - 1 rows wasted

A sequence takes a block when the last one is full, so nothing is reserved for what it may become,
and since every free block fits everybody, none is lost between others.

**Sharing.**  A fork (another sample of one prompt, a beam) copies the table and not the blocks:
every block has one owner more.  Full blocks are never written again.  The last one is, and while it
has several owners a writer first takes a block of its own (copy on write): `append` returns the
pairs (from, to) of blocks that the caller has to copy before it writes.  The last owner writes in
place.

**Out of memory.**  A sequence is preempted: its blocks are released, and its tokens are computed
again later (`free`), or its blocks are copied to the CPU's memory and back (`swap_out`, `swap_in`).
A swapped sequence has blocks of its own on its return: what it shared stays with the others.

Where well-known implementations differ: vLLM swaps all samples of a prompt together and so keeps
what they share; its current version always computes again.
Source: Kwon et al. 2023 (arXiv:2309.06180), sections 4.2 to 4.5.
"""

from collections.abc import Hashable, Sequence

from efflib.checks import expect_whole
from efflib.serving.blocks import BlockPool, blocks_for

Copy = tuple[int, int]  # copy all rows of the first block into the second


def slot_of(table: Sequence[int], position: int, block_size: int) -> int:
    """Where position p of a sequence lies.  Raises ValueError for one that has no block."""
    expect_whole(position=position)
    expect_whole(1, block_size=block_size)
    if position >= len(table) * block_size:
        raise ValueError(f"position={position} lies beyond {len(table)} blocks of {block_size}")
    return table[position // block_size] * block_size + position % block_size


class PagedSequences:
    """The block tables of sequences that share a pool of blocks.

    It holds no keys and values: a cache is a tensor [blocks, block_size, ...], and this says which
    of its rows are whose.  Every method either does all of its work or, where it raises, nothing.
    """

    def __init__(self, blocks: int, block_size: int, cpu_blocks: int = 0) -> None:
        expect_whole(1, block_size=block_size)
        expect_whole(cpu_blocks=cpu_blocks)
        self.block_size = block_size
        self.pool = self._new_pool(blocks)
        self.cpu_pool = BlockPool(cpu_blocks) if cpu_blocks else None
        self._tables: dict[Hashable, list[int]] = {}
        self._swapped: dict[Hashable, list[int]] = {}  # tables of blocks in the CPU's memory
        self._lengths: dict[Hashable, int] = {}

    def _new_pool(self, blocks: int) -> BlockPool:
        return BlockPool(blocks)

    @property
    def names(self) -> list[Hashable]:
        """Sequences that have their blocks here."""
        return list(self._tables)

    @property
    def swapped(self) -> list[Hashable]:
        """Sequences that have their blocks in the CPU's memory."""
        return list(self._swapped)

    def table(self, name: Hashable) -> list[int]:
        """The blocks of a sequence in the order of its text."""
        return list(self._tables[self._known(name)])

    def length(self, name: Hashable) -> int:
        """How many tokens of a sequence are stored."""
        return self._lengths[self._known(name, self._lengths)]

    def slots(self, name: Hashable, start: int = 0) -> list[int]:
        """The slots of positions start .. length - 1."""
        table, stop = self.table(name), self.length(name)
        expect_whole(start=start)
        return [slot_of(table, p, self.block_size) for p in range(start, stop)]

    def missing(self, name: Hashable, tokens: int) -> int:
        """How many free blocks `append` would take.  Raises ValueError as `append`."""
        expect_whole(tokens=tokens)
        if name in self._swapped:
            raise ValueError(f"sequence {name!r} is swapped out")
        length, table = self._lengths.get(name, 0), self._tables.get(name, [])
        new = blocks_for(length + tokens, self.block_size) - len(table)
        return new + (tokens > 0 and self._writes_into_shared(name))

    def append(self, name: Hashable, tokens: int) -> list[Copy]:
        """Room for so many more tokens; a name that is not known yet begins a sequence.

        Returns the blocks to copy, at most one pair, before anything is written.
        Raises OutOfBlocks, or ValueError for a sequence that is swapped out.
        """
        self.pool.need(self.missing(name, tokens))
        copies = []
        if tokens and self._writes_into_shared(name):
            table = self._tables[name]
            copies = [(table[-1], self.pool.take())]
            self.pool.release(table[-1])
            table[-1] = copies[0][1]
        table = self._tables.setdefault(name, [])
        self._lengths[name] = self._lengths.get(name, 0) + tokens
        while len(table) < blocks_for(self._lengths[name], self.block_size):
            table.append(self.pool.take())
        return copies

    def fork(self, name: Hashable, child: Hashable) -> None:
        """A sequence `child` with the same tokens, in the same blocks.

        Raises ValueError for a name that is not known, or a child that is.
        """
        table = self._tables[self._known(name)]
        if child in self._lengths:
            raise ValueError(f"there is a sequence {child!r} already")
        for block in table:
            self.pool.share(block)
        self._tables[child], self._lengths[child] = list(table), self._lengths[name]

    def free(self, name: Hashable) -> None:
        """The sequence ends, or is to be computed again: its blocks are released, last one first.

        Raises ValueError for a name that is not known.
        """
        if name in self._swapped:
            self.cpu_pool.release_all(self._swapped.pop(name))
        else:
            self.pool.release_all(self._tables.pop(self._known(name)))
        del self._lengths[name]

    def swap_out(self, name: Hashable) -> list[Copy]:
        """The sequence moves to the CPU's memory: pairs (block here, block there) to copy.

        Raises OutOfBlocks if there is no room, ValueError for a name that is not known.
        """
        table = self._tables[self._known(name)]
        if self.cpu_pool is None:
            raise ValueError("there is no memory to swap to: cpu_blocks=0")
        self.cpu_pool.need(len(table))
        self._swapped[name] = [self.cpu_pool.take() for _ in table]
        self.pool.release_all(self._tables.pop(name))
        return list(zip(table, self._swapped[name], strict=True))

    def swap_in(self, name: Hashable) -> list[Copy]:
        """The sequence comes back into free blocks: pairs (block there, block here) to copy.

        Raises OutOfBlocks, or ValueError for a name that is not swapped out.
        """
        there = self._swapped[self._known(name, self._swapped)]
        self.pool.need(len(there))
        self._tables[name] = [self.pool.take() for _ in there]
        self.cpu_pool.release_all(self._swapped.pop(name))
        return list(zip(there, self._tables[name], strict=True))

    def _writes_into_shared(self, name: Hashable) -> bool:
        """Whether the next token goes into a block that has other owners, too."""
        partly = self._lengths.get(name, 0) % self.block_size > 0
        return partly and self.pool.count(self._tables[name][-1]) > 1

    def _known(self, name: Hashable, among: dict | None = None) -> Hashable:
        among = self._tables if among is None else among
        if name not in among:
            raise ValueError(f"there is no sequence {name!r} here, only {list(among)}")
        return name
