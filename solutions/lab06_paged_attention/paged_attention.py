# %% [markdown]
# # Lab 6: PagedAttention
#
# ![One bar, the rows of a key and value cache on a busy server. A small part of it holds tokens;
# all the rest is marked with a question mark.](../../course/figures/lab06/opening.svg)
#
# **The question.** A server has memory for the keys and values of 20 000 tokens. Requests wait in
# line, because no room is left for the next one. Yet on average less than a fifth of the memory
# holds a token. **Where is the rest, and how can running requests get it, although nothing that
# is written may be moved?**
#
# At the end you answer it with what your own code counts on a trace of requests. The answer is
# graded.

# %% [markdown]
# ## Card
#
# | | |
# |---|---|
# | Time | about 3 and a half hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | what a KV cache is; classes in Python; softmax |
# | Not covered | schedulers (lab 14), writing a GPU kernel (lab 08), memory of the weights |
#
# After this lab you can
# 1. say, row by row, what becomes of a cache's memory, and count it exactly for four allocators;
# 2. build paged memory: block tables, owners that are counted, copy on write, found prefixes;
# 3. compute attention over blocks that lie anywhere, and show that it is the same attention.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions and classes by
# name, so keep names and arguments as they are. Later exercises call your earlier ones. Answer
# predictions in their field; where no field is shown, by `lab.answer("oracle", 50)`.
#
# ## Map and notation
#
# Section 1, blocks in place of pieces: exercises 1 to 3. Section 2, sharing: 4 and 5. Section 3,
# attention: 6. Section 4: your code in the live model.
#
# | word | in code | meaning |
# |---|---|---|
# | row, slot | `slot` | place for the key and the value of one token (in every layer) |
# | block | `block` | `block_size` neighbouring rows; block b has the slots b · block_size and on |
# | table | `table` | list of a sequence's blocks in the order of its text |
# | position | `positions` | number of a token in its sequence, from 0 |
# | owners | `count(block)` | how many tables hold a block; 0: it is free |
# | q | [H, d] | the query of one token: H heads of size d |
# | k, v pages | [blocks, block_size, Hkv, d] | keys and values; H is a multiple of Hkv |
# | o | [H, d] | what attention returns |
#
# ### Rules for all exercises
#
# Functions of this lab do not change their arguments; what they return may share memory with them.
# Objects (exercises 2 and 4) change themselves: that is what they are for.

# %%
import math
from collections import deque

import torch
from torch import Tensor

from efflib import zoo
from efflib.lab import Lab
from efflib.plots import explorer, memory, style, turing

lab = Lab("lab06_paged_attention")

LONGEST = 2048  # rows of the longest sequence that the server allows
BLOCK = 16  # rows of a block

# %% [markdown]
# ## Baseline
#
# A server runs Llama-2-7B in 16 bits on a GPU with 24 GB. What the weights leave is the cache: one
# row of it is a key and a value of 4096 numbers in each of 32 layers, half a megabyte.
#
# Requests come with prompts and answers of any length. Ours are drawn from log-normal
# distributions, most of them short and a few long, with a seed: the same for everybody. (With
# `efflib.traffic.traces.read_trace` you can use a file of your own.) Nobody knows beforehand how
# long an answer will be. So the simplest server gives every request one piece of `LONGEST` rows.

# %% tags=["demo"]
from efflib.models.llama import Llama, LlamaConfig
from efflib.traffic.traces import CHAT, draw_trace

config = LlamaConfig(32000, 4096, 11008, 32, 32, 32, 128, 4096)  # Llama-2-7B
with torch.device("meta"):  # its shapes, not its numbers
    llama = Llama(config)
found = {}  # the numbers you find, for the takeaways at the end
weights = 2 * sum(p.numel() for p in llama.parameters())
row = 2 * 32 * 4096 * 2  # key and value, layers, numbers, bytes
rows = int(24e9 - weights) // row // BLOCK * BLOCK

# %% tags=["demo"]
trace = draw_trace(150, *CHAT, per_step=0.3, seed=0)
print(f"weights {weights / 1e9:.1f} GB, a row {row / 1024:.0f} KB: {rows} rows of cache")
print(
    f"{len(trace)} requests, the first: {[tuple(r) for r in trace[:3]]} (arrival, prompt, answer)"
)
totals = sorted(r.total for r in trace)
print(f"tokens at the end: median {totals[75]}, longest {totals[-1]}; pieces that fit: ", end="")
print(f"{rows // LONGEST}")

# %% tags=["demo"]
lab.predict(
    "oracle",
    "A server knows every length, and gives each request one piece of just the rows that it needs "
    "in the end. While others wait, how many of all rows hold a token, on average?",
    unit="%",
)
lab.predict(
    "table",
    "From that oracle to blocks two things change: a sequence may lie anywhere, and it takes rows "
    "no earlier than it needs them. How much of the gain in used rows is due to the first?",
    unit="% of the gain",
)

# %% [markdown]
# ## 1. Blocks in place of pieces
#
# Operating systems had this problem with programs, and solved it by pages. The memory is cut into
# blocks of equal size. A sequence has a **table** of its blocks, in the order of its text; where
# they lie does not matter. It takes one more when the last one is full.
#
# $$ \text{slot}(p) \;=\; \text{table}[\lfloor p / B \rfloor] \cdot B + p \bmod B $$
#
# with $B$ rows in a block. The example of the lecture, blocks of 4 rows: *Alan Turing is a computer
# scientist and mathematician renowned* lies in the blocks 7, 1 and 4.

# %%
# the formula on four positions
for p in (0, 3, 4, 8):
    print(f"position {p}: row {p % 4} of block {[7, 1, 4][p // 4]}, slot", end=" ")
    print([7, 1, 4][p // 4] * 4 + p % 4)

# %% [markdown]
# ### Exercise 1 · From positions to slots
#
# **10 minutes · 15 points** · difficulty 1 of 5 ●○○○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `blocks_for(tokens, block_size) -> int` and
# `slots_of(table, positions, block_size) -> slots`.
#
# - `blocks_for`: how many blocks hold so many tokens (at most 10^9). None for 0 tokens.
# - `slots_of`: the slot of every position. `ValueError` if a position is negative, or lies beyond
#   the blocks of the table, also if it is only one of many. A table may be longer than is needed.
# - `block_size` is any integer from 1 on, not only a power of two.
#
# **Shapes** `table`: a list of ints, perhaps empty; `positions`: int64 of any shape, perhaps empty
# or a view that is not contiguous; `slots`: int64 of the same shape. Positions and slots are
# exact, however large: float32 knows no neighbours of 2^24.


# %% solution="ex1"
def blocks_for(tokens: int, block_size: int) -> int:
    """How many blocks of block_size rows hold so many tokens."""
    ### BEGIN SOLUTION
    return -(-tokens // block_size)
    ### END SOLUTION


def slots_of(table: list[int], positions: Tensor, block_size: int) -> Tensor:
    """The slots of positions (any shape), int64.

    Raises ValueError for a position below 0 or beyond the blocks of the table.
    """
    ### BEGIN SOLUTION
    if ((positions < 0) | (positions >= len(table) * block_size)).any():
        raise ValueError(f"positions must be from 0 to {len(table) * block_size - 1}")
    blocks = positions.new_tensor(table, dtype=torch.int64)[positions // block_size]
    return blocks * block_size + positions % block_size
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** A position has two parts, as 47 has tens and ones: which block of the table, and which
# row in it. Only the first part goes through the table.
#
# **By hand.** B = 4, table 7 1 4. Position 6 is row 2 of block 1, slot 4 + 2 = 6. Position 2 is row
# 2 of block 7, slot 30. Nine tokens need three blocks, eight need two.
#
# **The usual error.** `tokens // block_size + 1` is one too many where blocks are just full. And a
# negative position is no error to Python: `table[-1]` is the last block.
# </details>

# %% [markdown]
# ### Exercise 2 · The pool of blocks
#
# **15 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** a class `BlockPool`. A block has owners (the tables that hold it) or it is free.
#
# | call | does |
# |---|---|
# | `BlockPool(size)` | blocks 0 to size - 1, all free; size is at least 1 |
# | `free()` | how many blocks are free |
# | `count(block)` | how many owners a block has |
# | `take()` | a free block, now with one owner; returns its number |
# | `share(block)` | one more owner |
# | `release(block)` | one owner less; without owners the block is free |
#
# - `take` hands out the block that has been free **longest**; at first they come in the order
#   0, 1, 2, ... (A block keeps its contents until it is handed out. In section 2 that is worth
#   something.)
# - `MemoryError` from `take` if no block is free. `ValueError` from `share` and `release` for a
#   block that is free. Whatever raises changes nothing. Numbers that are no block do not occur. A
#   block may have hundreds of owners. What is returned are plain ints.
# - Two pools know nothing of each other. All of the calls should take the same time however many
#   blocks there are; this is not tested.


# %% solution="ex2"
class BlockPool:
    """Blocks 0 .. size - 1: free ones in a queue, and the number of owners of the others."""

    def __init__(self, size: int) -> None:
        ### BEGIN SOLUTION
        self.counts = [0] * size
        self.queue = deque(range(size))  # longest free first
        ### END SOLUTION

    def free(self) -> int:
        """How many blocks are free."""
        ### BEGIN SOLUTION
        return len(self.queue)
        ### END SOLUTION

    def count(self, block: int) -> int:
        """How many owners a block has."""
        ### BEGIN SOLUTION
        return self.counts[block]
        ### END SOLUTION

    def take(self) -> int:
        """The block that has been free longest.  Raises MemoryError if none is free."""
        ### BEGIN SOLUTION
        if not self.queue:
            raise MemoryError("no block is free")
        block = self.queue.popleft()
        self.counts[block] = 1
        return block
        ### END SOLUTION

    def share(self, block: int) -> None:
        """One more owner.  Raises ValueError for a free block."""
        ### BEGIN SOLUTION
        if self.counts[block] == 0:
            raise ValueError(f"block {block} is free")
        self.counts[block] += 1
        ### END SOLUTION

    def release(self, block: int) -> None:
        """One owner less; without owners the block is free.  Raises ValueError for a free block."""
        ### BEGIN SOLUTION
        if self.counts[block] == 0:
            raise ValueError(f"block {block} is free already")
        self.counts[block] -= 1
        if self.counts[block] == 0:
            self.queue.append(block)
        ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** Two things are to be remembered: for each block a number, and for the free ones their
# order. `take` and `release` work at the two ends of that order.
#
# **By hand.** Three blocks. Take, take: 0 and 1. Share 0, release 0: it still has an owner. Release
# 1, release 0: both are free, in the order 2, 1, 0. So the next block is 2, then 1, then 0.
#
# **The usual error.** `pop()` in place of `popleft()`: the block that was freed *last*. Or a block
# that is free at the first `release`, though others still own it: it is handed out again, and two
# sequences write into it.
# </details>

# %% [markdown]
# ### Exercise 3 · Where the memory goes
#
# **30 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# At each moment every row of the cache is one of five:
#
# | kind | meaning |
# |---|---|
# | used | holds a token |
# | reserved | belongs to a request, and will hold a token of it later |
# | internal | belongs to a request, and will never hold one |
# | external | belongs to nobody, and is of no use to the request that waits: see below |
# | free | belongs to nobody, else |
#
# **Deliver** three functions.
#
# - `piece(policy, prompt, output, longest) -> int`: rows of the one piece that a request gets.
#   `"maximum"`: longest. `"power2"`: the prompt and the smallest power of two that is at least
#   `output` (1, 2, 4, ...; output is at least 1); together they may exceed `longest`. `"oracle"`:
#   prompt and output. `ValueError` for others. No real server knows the output. `"power2"` is
#   given it to stand for a server whose guesses are too long by less than a factor of 2.
# - `contiguous_usage(pieces, size, wanted) -> (used, reserved, internal, external, free)`.
#   `pieces` is a list, in any order, of `(start, stop, tokens, total)`: a request has the rows
#   start to stop - 1, holds `tokens` now (0 if it has just come) and `total` at its end. `wanted`:
#   how many rows the next request in line needs in one piece; 0 if nobody waits. When are the rows
#   that belong to nobody *external* waste? Decide it from this: they are enough for the next
#   request, and it still can't run.
# - `paged_usage(requests, block_size, blocks) -> (the same five)`. `requests` is a list of
#   `(tokens, total)`; every request has just the blocks that its tokens need now. Any free block
#   serves any request.
#
# The five are ints, and their sum is the whole memory.


# %% solution="ex3"
def piece(policy: str, prompt: int, output: int, longest: int) -> int:
    """How many rows a request gets in one piece.  Raises ValueError for an unknown policy."""
    ### BEGIN SOLUTION
    if policy == "maximum":
        return longest
    if policy == "power2":
        return prompt + (1 << (output - 1).bit_length())
    if policy == "oracle":
        return prompt + output
    raise ValueError(f"policy={policy!r} is not known")
    ### END SOLUTION


def contiguous_usage(pieces: list, size: int, wanted: int) -> tuple[int, int, int, int, int]:
    """(used, reserved, internal, external, free) rows of a memory of `size` rows.

    pieces: (start, stop, tokens, total) of each request; wanted: rows that the next one needs.
    """
    ### BEGIN SOLUTION
    used = sum(tokens for _, _, tokens, _ in pieces)
    reserved = sum(total - tokens for _, _, tokens, total in pieces)
    internal = sum(stop - start - total for start, stop, _, total in pieces)
    gaps, end = [], 0
    for start, stop, _, _ in sorted(pieces):
        gaps.append(start - end)
        end = stop
    gaps.append(size - end)
    if max(gaps) < wanted <= sum(gaps):
        return used, reserved, internal, sum(gaps), 0
    return used, reserved, internal, 0, sum(gaps)
    ### END SOLUTION


def paged_usage(requests: list, block_size: int, blocks: int) -> tuple[int, int, int, int, int]:
    """The same five for paged memory; requests: (tokens, total) of each."""
    ### BEGIN SOLUTION
    own = [blocks_for(tokens, block_size) * block_size for tokens, _ in requests]
    used = sum(tokens for tokens, _ in requests)
    later = [min(n, total) for n, (_, total) in zip(own, requests, strict=True)]
    reserved = sum(later) - used
    return used, reserved, sum(own) - sum(later), 0, blocks * block_size - sum(own)
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** What belongs to a request is three neighbouring parts: what is there, what will be, what
# will never be. What belongs to nobody is one number, and only its name is the question: look at
# the longest gap, at all gaps together, and at what is wanted.
#
# **By hand.** 20 rows. A has the rows 0 to 7, 3 tokens now and 6 at its end: 3 used, 3 reserved, 2
# internal. B has 12 to 15, 4 of 4: all used. Gaps: 8 to 11 and 16 to 19. Somebody wants 6 rows: 8
# are there, but only 4 in one piece, so all 8 are external. Somebody wants 9: there is simply not
# enough, the 8 are free. In blocks of 4, A needs one block: 3 used, 1 reserved.
#
# **The usual errors.** `math.log(n, 2)`, which is a little above 29 for 2^29. Gaps between pieces
# that were not sorted. The gap behind the last piece, or before the first, forgotten. In blocks:
# rows that a request will still fill counted as lost.
# </details>
#
# **Reveal.** Your functions and your pool on the trace. The server (`efflib.traffic.server`) is
# the simplest there is: first come, first served; every running request gets one token in each
# step. Before the memory is full, and when only the last answers are written, every allocator has
# rows that nobody asks for. So all means are taken over the steps in which a request waits:
# `run.loaded`.
#
# The fifth server is a control. It knows every length, as the oracle does, and takes *all* blocks
# of a request when it is admitted. So between the third and the fourth line only the place changes
# (one piece, or blocks anywhere), and between the fourth and the fifth only the time at which they
# are taken.

# %% tags=["demo"]
from efflib.traffic.server import Blocks, Pieces, mean_share, replay


def paged(rows: int, size: int = BLOCK, keep: int = 0, at_once: bool = False) -> Blocks:
    """A memory in blocks, kept by your exercises 1 to 3."""
    return Blocks(rows, size, BlockPool, blocks_for, paged_usage, keep, at_once)


# five servers, one trace
policies = ("maximum", "power2", "oracle")
memories = {p: Pieces(rows, p, LONGEST, piece, contiguous_usage) for p in policies}
memories |= {"oracle, in blocks": paged(rows, at_once=True), f"blocks of {BLOCK}": paged(rows)}
served = {name: replay(trace, m) for name, m in memories.items()}
shares = {n: mean_share(run.loaded, memories[n].size) for n, run in served.items()}

# %% tags=["demo"]
for name, run in served.items():
    load = run.loaded  # a request waits
    used = found[f"used {name}"] = 100 * shares[name]["used"]
    running = found[f"running {name}"] = sum(u.running for u in load) / len(load)
    print(f"{name:17s} {used:4.1f} % of all rows used, {running:4.1f} requests run", end="")
    print(f" (in {len(load)} of {run.steps} steps), {run.computed_again} tokens again")
title = f"While requests wait, {found['used maximum']:.0f} % of the rows hold a token with the "
style.show(*memory.shares(shares, title + f"longest pieces, {used:.0f} % in blocks"))

# %% tags=["demo"]
lab.reveal("oracle", found["used oracle"])
first = found["used oracle, in blocks"] - found["used oracle"]
found["table"] = first
found["late"] = used - found["used oracle, in blocks"]
lab.reveal("table", 100 * first / (first + found["late"]))
print(f"anywhere: {first:.1f} points, as late as needed: {found['late']:.1f} points")

# %% [markdown]
# Three wastes, three causes. *Internal*: the answer was shorter than what was kept for it. An
# oracle has none, and still *reserves*: rows that a request will need, but not yet, serve nobody
# until then. *External*: gaps of the wrong lengths. Blocks leave at most $B - 1$ rows to each
# request. What is still *free* while a request waits is too little for it. With the longest pieces
# that is a rest shorter than one of them, which serves nobody, ever. External waste is partly the
# line's and not the memory's: if whoever fits may go ahead, it is less (the chapter counts it). The
# paper counts 20.4 to 38.2 % of used rows for three such servers, and 96.3 % in blocks, with other
# lengths and with a buddy allocator for the pieces (Kwon et al., section 1 and figure 2).
#
# What it costs: "again" counts the tokens that had to be computed again. Since nothing is
# reserved, blocks can run out, and then the request that came last is put back in line. A server
# that keeps some blocks free when it admits somebody (a **watermark**) pays less of this, and uses
# less. Both are counted below.
#
# What a step takes: it reads the weights once, for all requests together, and every row in use.
# Bytes through the bandwidth of an RTX 4090 are a bound on tokens per second.

# %% tags=["demo"]
for percent in (0, 1, 5):
    mark = paged(rows, keep=rows // BLOCK * percent // 100)
    run = replay(trace, mark)
    found[f"again {percent}"] = run.computed_again
    print(f"{percent} % kept free: {run.computed_again:5d} tokens again, {run.steps} steps", end="")
    print(f", {100 * mean_share(run.loaded, mark.size)['used']:.1f} % used")
for name in served:
    running = found[f"running {name}"]
    used_rows = shares[name]["used"] * memories[name].size
    rate = found[f"rate {name}"] = running * 1008e9 / (weights + used_rows * row)
    print(f"{name:17s} {running:4.1f} sequences: at most {rate:5.0f} tokens per second")

# %% [markdown]
# More sequences in the same memory: a step of decoding reads the weights once for all of them, so
# tokens per second grow with their number, if not as fast, since each reads its own keys and
# values. (These are bounds, without prompts and without what is computed again.) That is what
# PagedAttention is for. Attention itself gets no faster by it.
#
# ## 2. Sharing
#
# Several answers to one prompt, or the beams of a search, begin with the same tokens. With tables
# they can share blocks: a **fork** copies the table, and every block gets one more owner. Full
# blocks are not written again, so they can be shared for ever. (With speculative decoding rejected
# tokens are taken back and their rows written again: then it holds for blocks of accepted tokens
# only.) The last one is not full. Whoever writes into it, while it has other owners, first takes a
# block of its own and copies the rows: **copy on write**.

# %% tags=["demo"]
lab.predict(
    "copies",
    "A prompt of 40 tokens in blocks of 16 is forked twice, so three sequences have it. Each then "
    "writes one token. How many blocks are copied?",
    unit="blocks",
)

# %% [markdown]
# ### Exercise 4 · Sequences that share
#
# **45 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** a class `Sequences` that uses your `BlockPool`. It stores no keys and values: it says
# where they go.
#
# | call | does |
# |---|---|
# | `Sequences(blocks, block_size)` | no sequence yet |
# | `append(name, tokens) -> copies` | room for more tokens; an unknown name begins a sequence |
# | `fork(name, child)` | a sequence `child` of the same tokens, in the same blocks |
# | `free(name)` | the sequence ends |
# | `table(name) -> list`, `length(name) -> int` | its blocks in order; its tokens |
# | `free_blocks() -> int` | how many blocks of the pool are free |
#
# - `copies` is a list of pairs `(from, to)` of blocks whose rows the caller copies before it
#   writes: empty, or one pair. A block is copied only if a token goes into it (`append(name, 0)`
#   copies nothing) and others own it. The *last* owner writes in place.
# - A sequence has exactly the blocks that its tokens need. `append` takes no more blocks than it
#   must, and never changes an entry of the table but the last, and that only by a copy.
# - `MemoryError` if `append` needs more blocks than are free: then nothing has changed, and an
#   unknown name is unknown still.
# - Whatever raises leaves also the order of the free blocks as it was: the next `append` takes
#   those that it would have taken.
# - `ValueError` from `fork` for an unknown name, or a child that exists; from `free`, `table` and
#   `length` for an unknown name. `append(name, 0)` begins a sequence without blocks. A name is any
#   string or int, "" and 0 too.
# - `free` releases the *last* block first: the beginning of a text is what others may want again.
# - `table` returns a list that the caller may change.


# %% solution="ex4"
class Sequences:
    """Block tables of sequences that share a pool of blocks."""

    def __init__(self, blocks: int, block_size: int) -> None:
        ### BEGIN SOLUTION
        self.pool = BlockPool(blocks)
        self.block_size = block_size
        self.tables, self.lengths = {}, {}
        ### END SOLUTION

    def append(self, name: str | int, tokens: int) -> list[tuple[int, int]]:
        """Room for more tokens; returns the pairs (from, to) of blocks to copy before writing.

        Raises MemoryError, and changes nothing, if there are not enough free blocks.
        """
        ### BEGIN SOLUTION
        table, length = self.tables.get(name, []), self.lengths.get(name, 0)
        partly = tokens > 0 and length % self.block_size > 0
        copy = partly and self.pool.count(table[-1]) > 1
        new = blocks_for(length + tokens, self.block_size) - len(table)
        if new + copy > self.pool.free():
            raise MemoryError(f"{new + copy} blocks are needed, {self.pool.free()} are free")
        copies = []
        if copy:
            copies = [(table[-1], self.pool.take())]
            self.pool.release(table[-1])
            table[-1] = copies[0][1]
        self.tables[name] = table + [self.pool.take() for _ in range(new)]
        self.lengths[name] = length + tokens
        return copies
        ### END SOLUTION

    def fork(self, name: str | int, child: str | int) -> None:
        """A sequence `child` in the blocks of `name`.  Raises ValueError for wrong names."""
        ### BEGIN SOLUTION
        if child in self.tables:
            raise ValueError(f"there is a sequence {child!r} already")
        table, length = self.table(name), self.length(name)
        for block in table:
            self.pool.share(block)
        self.tables[child], self.lengths[child] = table, length
        ### END SOLUTION

    def free(self, name: str | int) -> None:
        """The sequence ends: its blocks are released, the last one first.  Raises ValueError."""
        ### BEGIN SOLUTION
        for block in reversed(self.table(name)):
            self.pool.release(block)
        del self.tables[name], self.lengths[name]
        ### END SOLUTION

    def table(self, name: str | int) -> list[int]:
        """The blocks of a sequence.  Raises ValueError for an unknown name."""
        ### BEGIN SOLUTION
        if name not in self.tables:
            raise ValueError(f"there is no sequence {name!r}")
        return list(self.tables[name])
        ### END SOLUTION

    def length(self, name: str | int) -> int:
        """The tokens of a sequence.  Raises ValueError for an unknown name."""
        ### BEGIN SOLUTION
        if name not in self.lengths:
            raise ValueError(f"there is no sequence {name!r}")
        return self.lengths[name]
        ### END SOLUTION

    def free_blocks(self) -> int:
        """How many blocks of the pool are free."""
        ### BEGIN SOLUTION
        return self.pool.free()
        ### END SOLUTION


# %% check="ex4"
lab.check("ex4")

# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** First find out how many blocks are needed, the copy included; only then change anything.
# When is the last block written by this call? When a token comes and the block is not full.
#
# **By hand.** Blocks of 4. A has 6 tokens in the blocks 0 and 1; B is forked from it. B appends
# one: block 1 is not full and has two owners, so B takes 2, the pair is (1, 2), and 1 has one
# owner left. A appends one: it is alone in block 1 now, and writes in place. Had A had 8 tokens,
# both blocks would be full: B takes a new block and nothing is copied.
#
# **The usual errors.** Two tables that are one list: appending to the child lengthens the parent.
# Blocks taken one by one until there are none, and half of them kept when the error comes. A full
# block copied, although nobody writes into it.
# </details>
#
# **Reveal.** Your class on the example of the lecture. Other requests have filled the memory
# (hatched), and those in the blocks 7, 1, 4 and 2 have ended in this order. Behind the text of the
# lecture, B is forked from A, and both go on differently. Move the slider to go through it step by
# step.


# %% tags=["demo"]
def draw(step: float):
    return turing.draw(Sequences, slots_of, int(step))


explorer.explorer(draw, {"step": [float(i) for i in range(len(turing.STORY) + 1)]})
style.show(*draw(len(turing.STORY)))  # the last step, where nothing can move
shared = Sequences(40, 16)
shared.append("A", 40)
for child in "BC":
    shared.fork("A", child)
found["copies"] = sum(len(shared.append(name, 1)) for name in "ABC")
lab.reveal("copies", found["copies"])

# %% [markdown]
# ### Exercise 5 · Prefixes that are found again
#
# **25 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# Requests that know nothing of each other may begin alike, too: with the same instructions, or with
# the conversation so far. So every *full* block gets a key that stands for all tokens up to its
# end,
#
# $$ k_i = \text{hash}(k_{i-1},\; \text{tokens of block } i), \qquad k_{-1} = 0, $$
#
# and a dictionary says which block holds what. Blocks of ended sequences stay in it until they are
# handed out again. A new request walks along its prompt as long as blocks are found.
#
# **Deliver** `chain(tokens, block_size, hash_block) -> keys` and
# `match(prompt, block_size, hash_block, found) -> blocks`.
#
# - `chain`: the keys of the full blocks of a text, a list of ints. `hash_block(key, tokens)` gets
#   the key before and a *tuple* of ints, and is called once for each full block. Keys have up to 64
#   bits; texts have up to some 10 000 tokens, and ids as large as a vocabulary (150 000).
# - `match`: the blocks that hold the beginning of the prompt, in order, up to the first that is not
#   found. `found` is `{key: (block, tokens)}`, where `tokens` is the list of *all* tokens from the
#   beginning of that text to the end of the block.
# - A prompt has at least one token. At least one must be computed, since its output chooses the
#   next token. So the block that holds the last token of the prompt is never used, even if it is
#   full and known.
# - A hash is no proof: different texts may have one key. A block is used only if `found` says that
#   it holds what is asked for.


# %% solution="ex5"
def chain(tokens: list[int], block_size: int, hash_block) -> list[int]:
    """The keys of the full blocks of a text; hash_block(key before, tuple of tokens) -> key."""
    ### BEGIN SOLUTION
    keys, key = [], 0
    for end in range(block_size, len(tokens) + 1, block_size):
        key = hash_block(key, tuple(tokens[end - block_size : end]))
        keys.append(key)
    return keys
    ### END SOLUTION


def match(prompt: list[int], block_size: int, hash_block, found: dict) -> list[int]:
    """The blocks that hold the beginning of a prompt, without its last token.

    found: {key: (block, all tokens up to the end of the block)}.
    """
    ### BEGIN SOLUTION
    blocks = []
    for i, key in enumerate(chain(prompt[:-1], block_size, hash_block)):
        block, tokens = found.get(key, (None, None))
        if tokens != prompt[: (i + 1) * block_size]:
            break
        blocks.append(block)
    return blocks
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** `chain` is a loop over ends of full blocks, and carries the key along. `match` walks
# along the chain of what may be used, and asks twice at each step: is the key there, and is it
# really this text?
#
# **By hand.** Blocks of 2, prompt 5 6 7 8. Its chain has two keys, but the last token, 8, must be
# computed: only the first block, 5 6, can be used. With the prompt 5 6 7 8 9 both can.
#
# **The usual errors.** Tokens of the block compared, and not those before it: after a hash that
# collides, "7 8" of another text is taken. Or a walk that goes on after a miss: a block without the
# ones before it is of no use.
# </details>
#
# **Reveal.** Two conversations take turns, four each: a prompt is all that was said so far. (For
# want of real ones they are texts of prose, cut after 200, 400, 600 and 800 tokens.) One memory has
# room for both, one of 64 blocks has not: blocks that hold something are taken again. As a control
# the same memory, to which texts give back their *first* block first. Then strangers: with 100
# tokens of instructions in common, and with nothing. The line of blocks is
# `efflib.traffic.conversations`; keys come from your `chain`, and what is found from your `match`.
# How many tokens of the prompts are found, in %?

# %% tags=["demo"]
from efflib.traffic.conversations import Conversations
from efflib.zoo import corpus

texts = [t for t in corpus.documents("prose", held_out=True).values() if len(t) > 6000][:8]
ids = [zoo.load_tokenizer().encode(text[:6000]).ids for text in texts]
two = [text[: 200 * n] for n in (1, 2, 3, 4) for text in ids[:2]]
strangers = [row[: 200 * n] for n, row in zip((1, 2, 3, 4), ids[1:], strict=False)]
told = [ids[0][:100] + row[100:] for row in strangers]


def share_found(prompts: list, blocks: int, heads_first: bool = False) -> float:
    cache = Conversations(blocks, BLOCK, chain, match, heads_first)
    for prompt in prompts:
        cache.serve(prompt)
    return 100 * cache.found / cache.asked


# %% tags=["demo"]
for label, prompts in (("two in turn", two), ("same instructions", told), ("strangers", strangers)):
    found[label] = share_found(prompts, 200)
    print(f"{label:17s} {found[label]:4.1f} % found in 200 blocks")
for blocks in (52, 64, 76, 88):
    tails, heads = share_found(two, blocks), share_found(two, blocks, heads_first=True)
    found[f"tails {blocks}"], found[f"heads {blocks}"] = tails, heads
    print(f"two in {blocks} blocks: {tails:.1f} %; {heads:.1f} % if first blocks come back first")

# %% [markdown]
# **Then write one sentence:** a sequence gives back its last block first, and the line hands out
# what has been free longest. Which blocks of an ended conversation are lost first, and why do 64
# blocks find less in the other order? (An answer is folded behind exercise 6.)
#
# *Your sentence:*
#
# ## 3. Attention over blocks
#
# The kernel finds a key by the table; otherwise attention is what it was. But softmax needs the
# largest score of *all* keys, and blocks come one after the other. The way out is to keep three
# numbers for each head, and to correct them when a larger score comes (*online softmax*):
#
# $$ m' = \max(m, \max_j s_j), \quad
# t' = t\,e^{m - m'} + \sum_j e^{s_j - m'}, \quad
# a' = a\,e^{m - m'} + \sum_j e^{s_j - m'}\, v_j, \qquad o = a / t $$
#
# with $j$ over the rows of one block, $s_j = q \cdot k_j / \sqrt d$, and at first $m = -\infty$,
# $t = 0$, $a = 0$. The cell below takes two blocks each by itself. Their sums are measured from
# different largest scores, 3 and 5: added as they are, the first block counts $e^2$ times too much.

# %%
# four scores in two blocks of two: each alone, and at once
s, v = torch.tensor([1.0, 3.0, 5.0, 2.0]), torch.tensor([10.0, 20.0, 30.0, 40.0])
m = s.unflatten(0, (2, 2)).amax(1)
p = torch.exp(s.unflatten(0, (2, 2)) - m[:, None])
t, a = p.sum(1), (p * v.unflatten(0, (2, 2))).sum(1)
print(f"m {m.tolist()}, t {t.tolist()}, a {a.tolist()}")
print(f"sums added as they are: {a.sum() / t.sum():.5f}, at once: {s.softmax(0) @ v:.5f}")

# %% tags=["demo"]
lab.predict(
    "blocks",
    "Section 4 writes three answers of 40 tokens to one prompt of 16, in blocks of 5 rows. Without "
    "sharing that takes 3 times 12 blocks. How many with your exercise 4?",
    unit="blocks",
)

# %% [markdown]
# ### Exercise 6 · Paged attention
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `absorb(state, scores, values) -> state` and
# `paged_attention(q, k, v, table, length) -> o`.
#
# - `absorb`: one step of the formula for all heads. `state` is `(m, t, a)`; the state before the
#   first block holds `m = -inf`. At least one key comes.
# - In both functions scores are finite, from -1e4 to 1e4, and may differ by as much from block to
#   block and from head to head; values are any numbers up to 1e30 in magnitude. No constant is
#   added to `t` against a division by 0: it is at least 1.
# - `paged_attention`: the query `q` of one token over the first `length` (at least 1) keys of a
#   sequence. Query head h uses key head h // (H / Hkv). Rows beyond `length`, and blocks that are
#   not needed, may hold anything, NaN too; entries of the table beyond them may be no blocks.
# - Compute in float32 or finer, whatever the dtype of q, k and v. Results are float32.
#
# **Shapes** `scores` [H, n], `values` [H, n, d]; `m` and `t` [H], `a` [H, d]; all float32. `q`
# [H, d] and `k`, `v` [blocks, block_size, Hkv, d]: float32 or bfloat16 (`k` and `v` the same, `q`
# perhaps the other), perhaps views that are not contiguous, and memory that is written again
# between two calls; `table` a list; `o` [H, d].


# %% solution="ex6"
def absorb(state: tuple, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(m [H], t [H], a [H, d]) after n more keys: scores [H, n], values [H, n, d]."""
    ### BEGIN SOLUTION
    m, t, a = state
    larger = torch.maximum(m, scores.amax(-1))
    p, keep = torch.exp(scores - larger[:, None]), torch.exp(m - larger)
    summed = (p[:, :, None] * values).sum(1)
    return larger, t * keep + p.sum(-1), a * keep[:, None] + summed
    ### END SOLUTION


def paged_attention(q: Tensor, k: Tensor, v: Tensor, table: list[int], length: int) -> Tensor:
    """Attention of q [H, d] over the first `length` keys of a table: [H, d] float32."""
    ### BEGIN SOLUTION
    heads, d = q.shape
    block_size, group = k.shape[1], heads // k.shape[2]
    a = torch.zeros_like(q, dtype=torch.float32)
    state = torch.full_like(a[:, 0], -math.inf), torch.zeros_like(a[:, 0]), a
    for i in range(blocks_for(length, block_size)):
        n = min(block_size, length - i * block_size)
        keys, values = (
            x[table[i], :n].float().repeat_interleave(group, dim=1).transpose(0, 1) for x in (k, v)
        )  # [H, n, d]
        scores = (keys @ q.float()[:, :, None]).squeeze(-1) / math.sqrt(d)  # [H, n]
        state = absorb(state, scores, values)
    _, t, a = state
    return a / t[:, None]
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")

# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** The state is what a softmax of all keys so far needs, measured from m. A new block may
# bring a larger m, and then both sums have to be said in its measure. In `paged_attention` cut the
# last block to the rows that are there *before* you compute with it: NaN times 0 is NaN.
#
# **By hand.** The cell above: after the first block m = 3 and t = e^-2 + 1 = 1.1353. The second
# brings a 5: what was there is multiplied by e^-2, and t = 1.1353 · 0.1353 + 1 + e^-3 = 1.2034.
#
# **The usual errors.** a is corrected and t is not. `repeat` in place of `repeat_interleave`: the
# query heads 0 and 1 must both use key head 0. The largest score not taken off: e^89 is no float32.
# </details>
#
# <details><summary>To the sentence about conversations</summary>
#
# The ends of texts are lost first: they came back first, so they have been free longest. In the
# other order the beginnings are lost first, and without its first block nothing of a text is
# found, however many of its later blocks are still there.
# </details>

# %% [markdown]
# ## 4. Your code in the live model
#
# The course's model writes three continuations of one prompt. Your class keeps the tables, keys and
# values are written into the rows that your `slots_of` names (`efflib.models.pages`), and your
# attention reads them. Beside it, the same with the plain cache, which copies the prompt for each
# of them. (This model has as many key heads as heads, so a wrong order of grouped heads would not
# show here. The tests of exercise 6 have groups.)


# %% tags=["demo"]
from efflib.models.cache import KVCache
from efflib.models.pages import Pages, reading_pages

model = zoo.load("target")
tokenizer = zoo.load_tokenizer()
prompt = torch.tensor([[zoo.BEGIN_ID, *tokenizer.encode(zoo.PROMPTS[1]).ids]])


# %% tags=["demo"]
@torch.no_grad()
def continuations(cache, samples: int, tokens: int) -> Tensor:
    """Ids [samples, tokens] of so many continuations, drawn with a seed."""
    generator, written = torch.Generator().manual_seed(1), []
    logits = model(prompt, cache=cache)[:, -1]
    cache.reorder(torch.zeros(samples, dtype=torch.int64))
    logits = logits.expand(samples, -1)
    for _ in range(tokens):
        new = torch.multinomial((logits / 0.7).softmax(-1), 1, generator=generator)
        written.append(new)
        logits = model(new, cache=cache)[:, -1]
    return torch.cat(written, dim=1)


# %% tags=["demo"]
samples, answer = 3, 40
plain = continuations(KVCache(), samples, answer)
mine = Sequences(64, 5)
cache = Pages(64, 5, mine, slots_of)
with reading_pages(model, cache, paged_attention):
    in_pages = continuations(cache, samples, answer)
found["blocks"] = 64 - mine.free_blocks()
found["alone"] = samples * blocks_for(prompt.shape[1] + answer, 5)
print(f"prompt of {prompt.shape[1]} tokens, {samples} answers of {answer}, blocks of 5 rows")
print(f"blocks in use: {found['blocks']}, {cache.copied} copied; without sharing {found['alone']}")
print(f"the same tokens as with the plain cache: {torch.equal(plain, in_pages)}")
lab.reveal("blocks", found["blocks"])
for row_of_ids in in_pages:
    print("---\n" + zoo.PROMPTS[1] + tokenizer.decode(row_of_ids.tolist()))

# %% [markdown]
# Prompts have 16 tokens, three blocks of 5 and one row of a fourth. The three full ones are shared
# to the end. The fourth was copied by the first two that wrote into it; the third was alone in it
# then, and wrote in place.
#
# ## 5. Misconceptions
#
# **"Small blocks waste least, so take blocks of one row."** They waste nothing, and little is won
# by it: compare the lines for 1 and 16 below, and for 256. A table has an entry for each block, and
# a kernel that takes a block at a time can't keep a GPU busy with a row (Kwon et al., section 7.2).
# vLLM takes 16.

# %% tags=["demo"]
for size in (1, 16, 64, 256):
    memories_of = paged(rows, size)
    run = replay(trace, memories_of)
    used = 100 * mean_share(run.loaded, memories_of.size)["used"]
    running = sum(u.running for u in run.loaded) / len(run.loaded)
    print(f"blocks of {size:3d}: {used:4.1f} % used, {running:.1f} requests run", end="")
    print(f", a table of {LONGEST} rows has {blocks_for(LONGEST, size)} entries")

# %% [markdown]
# **"PagedAttention makes attention faster."** A look into a table for each block costs time: 20 to
# 26 % in the paper's kernel of 2023 (section 7.1); other kernels were not measured here. What it
# gains is memory, so that more sequences run at once.
#
# **"A server wastes memory because it has no pages."** Most of the gain above came from taking
# rows late, and a table is what makes that possible. Another way to it is the GPU's own virtual
# memory: the addresses stay in one piece, and pages are put behind them when they are needed
# (vAttention).
#
# **"Copy on write is what makes prefix caching safe."** Prefixes are shared in full blocks only,
# and nobody writes into a full block. It is for forks in the middle of a block.
#
# **"A good hash needs no comparison."** With 64 bits and honest texts a collision is unlikely, and
# several servers rely on it. Where users can choose texts so that hashes collide, one may be served
# from the cache of another. And even if it is not, a prompt whose beginning is found is answered
# sooner: the time tells whether somebody has sent the same. A salt in the hash for each user helps
# against both, and shares less.
#
# ### Open task (not graded)
#
# **Compute less twice.** In a memory of 8192 rows a server in blocks of 16 has to put requests of
# this trace back again and again, and to compute their tokens again. Two baselines are printed
# below: room for the prompt only, and a watermark of 5 % besides, which is one line. Beat the
# second in tokens computed again, with no more than 3 % more steps than the first. Some ideas: let
# what stays free depend on how many run and how long they have; put back another one than the
# last; know something about lengths.
#
# In `Mine` there are `self.pool.free()`, blocks that are free; `self.blocks`, all of them;
# `self.keep`, the watermark; `self.needs(tokens)`, the blocks that hold so many tokens;
# `self.tokens`, the tokens of each request that runs, by its number.


# %% tags=["demo"]
class Mine(Blocks):
    """Yours. It starts as the server with a watermark."""

    def admit(self, i: int, request) -> bool:
        """Whether request i may run now; if so, it takes the blocks of its prompt."""
        return super().admit(i, request)


small = 8192  # rows
mark = small // BLOCK * 5 // 100
servers = {"plain": paged(small), "5 % free": paged(small, keep=mark)}
servers["yours"] = Mine(small, BLOCK, BlockPool, blocks_for, paged_usage, mark)
for name, server in servers.items():
    run = replay(trace, server)
    found[f"open {name}"] = run.computed_again
    print(f"{name:9s} {run.computed_again:6d} tokens computed again in {run.steps} steps")

# %% [markdown]
# ## 6. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1, the one of the title.** On average less than a fifth of a full cache holds tokens.
# Where is the rest, and how do running requests get it, although nothing that is written may be
# moved? How much of the gain over the oracle does lying anywhere bring, and how much taking blocks
# late? What is paid? *Rubric:* the three kinds of waste with their causes, and your numbers (2);
# why with a table no gap is useless, and nothing has to be kept for later (1); both parts of the
# gain, with the numbers of the control (1); what it costs, with a number, and what makes that less
# (1).

# %% [markdown] written="w1"
# Most of it is internal waste: each request has 2048 rows, and most need a few hundred. More is
# reserved, rows that will be used later and serve nobody until then. With pieces of fitting length
# external waste comes in: gaps that together would be enough, but not in one piece. In my run 18 %
# of the rows held tokens with pieces of the greatest length, 54 % with an oracle, and 97 % in
# blocks. With a table a sequence need not lie in one piece, so every free block fits everybody,
# and it can take a block when it needs one, so nothing is kept for later. The control with all
# blocks at once reached 60 %: lying anywhere brought 5 points, and taking blocks late 38. The
# price is that memory can run out in the middle of an answer: 10,929 tokens were computed again,
# and 1,789 with 5 % of the blocks kept free at admission. Besides, each block costs a look into
# the table.

# %% [markdown]
# **Question 2.** A colleague copies *all* blocks at every fork, "so that nobody can write into
# another's text". Another never copies: "owners are counted, that is enough." What goes wrong with
# each? When exactly must a block be copied, and why are found prefixes never copied? *Rubric:*
# cost of the first, with two numbers of blocks from your run (2); what happens with the second, in
# an example (1); the rule, with both of its conditions, and full blocks (2).

# %% [markdown] written="w2"
# Copying all blocks at every fork gives up what sharing gains: three answers would have used three
# times the blocks of the prompt (in my run 36 blocks in place of 30, with a prompt of only 16
# tokens). Without copies two sequences write into one row: A and B share a block with two rows
# filled, B writes its third token, then A writes its own into the same row, and B goes on with A's
# token. A block has to be copied when a token is written into it and it has another owner at that
# moment. Both are needed: a block that is full is not written any more, and the last owner may
# write in place. Found prefixes consist of full blocks only, and the request begins to write
# behind them, in a block of its own.

# %% [markdown]
# ## Stretch (not graded)
#
# - **Swap.** When blocks run out, copy a sequence to the CPU's memory and back, in place of
#   computing it again. When is it cheaper? (Bytes over the PCIe bus against FLOPs of a prompt.)
# - **Split a long sequence.** Two processors take half of the blocks each. Merge their states
#   (m, t, a), in any order, and show that any split gives the same o. (Lab 8 grades such a merge.)
# - **Beams.** Run `Sequences` under a beam search of width 4: how many blocks are copied?
# - **Evict.** Write the pool of a prefix cache: what was used least recently leaves first, and its
#   key with it.
#
# **Next:** lab 14 puts a scheduler on top, lab 18 an engine.
#
# **Sources.** Kwon et al., *Efficient Memory Management for Large Language Model Serving with
# PagedAttention*, 2023 (arXiv:2309.06180). Milakov and Gimelshein, *Online normalizer calculation
# for softmax*, 2018 (arXiv:1805.02867). Prabhu et al., *vAttention*, 2024 (arXiv:2405.04437): pages
# by the GPU's virtual memory. MIT 6.5940, lectures on LLM deployment. The code of nano-vllm and
# vLLM (prefix caching).
#
# ## Report and takeaways
#
# What the public tests gave, your predictions, and the takeaways with the numbers you found.

# %% tags=["demo"]
lab.report()
f, name = found, f"blocks of {BLOCK}"
takeaways = [
    f"While requests wait, one piece of {LONGEST} rows each: {f['used maximum']:.0f} % is used.",
    f"With an oracle {f['used oracle']:.0f} %, in {name} rows {f[f'used {name}']:.0f} %.",
    f"Lying anywhere brings {f['table']:.0f} points of it, taking blocks late {f['late']:.0f}.",
    f"So {f[f'running {name}']:.0f} requests run at a time, and not {f['running maximum']:.0f}.",
    f"The price: {f['again 0']} tokens again, {f['again 5']} with 5 % kept free.",
    f"Found in 64 blocks: {f['tails 64']:.0f} %, {f['heads 64']:.0f} % if heads are lost first.",
    f"Three answers to one prompt: {f['blocks']} blocks, {f['alone']} without sharing.",
    f"Open task: {f['open yours']} tokens computed again, {f['open 5 % free']} to beat.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))
