"""The example of the lecture, step by step: a text in blocks, and two answers that part.

Other requests have filled the memory; those in the blocks 7, 1, 4 and 2 have ended, in this order.
The text takes blocks as it grows; then B is forked from it, and both go on.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from efflib.plots.memory import Drawn, blocks

SIZE, BLOCKS, FREED = 4, 8, "7142"
STORY = (
    ("A", "Alan Turing is a computer scientist"),
    ("A", "and"),
    ("A", "mathematician"),
    ("A", "renowned"),
    ("B", ""),
    ("B", "throughout"),
    ("A", "for"),
)


def draw(sequences_of: Callable, slots_of: Callable, steps: int) -> Drawn:
    """The memory after so many steps; sequences_of(blocks, block_size) keeps the tables."""
    sequences, rows = sequences_of(BLOCKS, SIZE), [[""] * SIZE for _ in range(BLOCKS)]
    for other in range(BLOCKS):
        sequences.append(str(other), SIZE)
    for other in FREED:
        sequences.free(other)
    title = "Before the prompt: blocks 7, 1, 4 and 2 are free"
    for name, text in STORY[:steps]:
        title = write(sequences, slots_of, rows, name, text.split())
    names = sorted({name for name, _ in STORY[:steps]})
    tables = {name: (sequences.table(name), sequences.length(name)) for name in names}
    others = [b for i in range(BLOCKS) if str(i) not in FREED for b in sequences.table(str(i))]
    return blocks(rows, tables, title, others)


def write(sequences, slots_of: Callable, rows: list, name: str, words: list[str]) -> str:
    """Appends words to a sequence, or forks B from A; what happened, in words."""
    if not words:
        sequences.fork("A", name)
        return f"{name} is forked from A: the same blocks, which have two owners now"
    copies = sequences.append(name, len(words))
    for a, b in copies:
        rows[b] = list(rows[a])
    table, end = sequences.table(name), sequences.length(name)
    positions = torch.arange(end - len(words), end)
    slots = slots_of(table, positions, SIZE).tolist()
    for slot, word in zip(slots, words, strict=True):
        rows[slot // SIZE][slot % SIZE] = word
    before = math.ceil((end - len(words)) / SIZE)  # blocks that it had
    if before == 0:
        return f"A prompt of {len(words)} words: {name} takes the blocks {table}"
    if copies:
        (a, b), *_ = copies
        return f"{name} writes {words[-1]!r}: block {a} had two owners and was copied to {b}"
    if table[before:]:
        return f"{name} writes {words[-1]!r}: its blocks were full, so it takes block {table[-1]}"
    return f"{name} writes {words[-1]!r} in place: block {table[-1]} has no other owner"
