"""Public tests of lab06: what lab.check runs.  Examples by hand, properties, and random walks.

A block has block_size rows; a table lists the blocks of a sequence; slot = block * size + row.
Objects are driven by walks: random sequences of operations, all of them in one call.  A model here
knows what must be seen after each operation, and a walk that fails is made as short as it can be.
"""

import math

import torch

from efflib.lab import exercise, expect_close, expect_error, expect_tensor
from efflib.lab.walks import expect_walks

FLOAT32 = 2.0**-24  # relative error of one float32 rounding


def draw(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


def whole(value, what):
    """The int that `value` is; fails for a float, a bool or a tensor."""
    assert type(value) is int, f"{what} is {value!r} of type {type(value).__name__}, not an int"
    return value


# ---- exercise 1: positions and slots ---------------------------------------------------------


@exercise(
    "ex1",
    points=2,
    invariant="blocks of 4 rows: 0, 1, 4, 5, 9 tokens have 0, 1, 1, 2, 3 blocks",
    cause="one too many where blocks are just full (tokens // size + 1), or rounded down",
)
def test_blocks_by_hand(student, rng):
    for tokens, right in ((0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)):
        seen = whole(student.blocks_for(tokens, 4), f"blocks_for({tokens}, 4)")
        assert seen == right, f"{tokens} tokens in blocks of 4: {seen} blocks, expected {right}"
    for size in (1, 3, 16):
        seen = whole(student.blocks_for(17, size), f"blocks_for(17, {size})")
        least = seen * size >= 17 > (seen - 1) * size
        assert least, f"17 tokens in blocks of {size}: {seen} blocks"


@exercise(
    "ex1",
    points=3,
    invariant="table 7 1 4 in blocks of 4: positions 0, 3, 4, 6, 8 have the slots 28, 31, 4, 6, 16",
    cause="the position looked up in the table, the number of the block in the table taken for the "
    "block, the block not multiplied by its size, a shape that is lost, or a tensor of an empty "
    "list without a dtype",
)
def test_slots_by_hand(student, rng):
    for positions, right in (
        ([0, 3, 4, 6, 8], [28, 31, 4, 6, 16]),
        ([[8, 0], [5, 2]], [[16, 28], [5, 30]]),
        (7, 7),
    ):
        slots = student.slots_of([7, 1, 4], torch.tensor(positions), 4)
        slots = expect_tensor(slots, "slots_of(...)", torch.int64, torch.tensor(positions).shape)
        assert slots.tolist() == right, f"positions {positions} have slots {slots.tolist()}"
    slots = student.slots_of([5, 0], torch.tensor([0, 2, 3, 5]), 3)
    expect_tensor(slots, "slots_of(...)", torch.int64, (4,))
    assert slots.tolist() == [15, 17, 0, 2], f"blocks of 3, table 5 0: slots {slots.tolist()}"
    none = student.slots_of([], torch.tensor([], dtype=torch.int64), 4)
    expect_tensor(none, "slots_of([], no positions, 4), an empty table,", torch.int64, (0,))


@exercise(
    "ex1",
    points=1,
    invariant="a position below 0, or beyond the blocks of the table, is a ValueError",
    cause="Python's negative indices, or the IndexError of a list or tensor",
)
def test_positions_that_are_none(student, rng):
    ends = student.slots_of([7, 1], torch.tensor([0, 7]), 4)
    assert expect_tensor(ends, "slots_of(...)", torch.int64, (2,)).tolist() == [28, 7], (
        f"the first and the last position have the slots {ends.tolist()}"
    )
    for bad in (-1, 8, 40):
        expect_error(
            ValueError,
            lambda bad=bad: student.slots_of([7, 1], torch.tensor([0, bad]), 4),
            f"position {bad} of two blocks of 4",
        )


# ---- exercise 2: the pool --------------------------------------------------------------------


class Pool:
    """The model: a list of owners, and the free blocks in the order in which they became free."""

    def __init__(self, size):
        self.counts, self.queue = [0] * size, list(range(size))

    def apply(self, op):
        """(what must happen, the value that must come): "ok" or the kind of the error."""
        name, *block = op
        if name == "take":
            if not self.queue:
                return "MemoryError", None
            block = self.queue.pop(0)
            self.counts[block] = 1
            return "ok", block
        block = block[0]
        if self.counts[block] == 0:
            return "ValueError", None
        self.counts[block] += 1 if name == "share" else -1
        if self.counts[block] == 0:
            self.queue.append(block)
        return "ok", None


def pool_walk(rng, size, length):
    return [
        ("take",) if draw(rng, 0, 2) == 0 else (names, draw(rng, 0, size - 1))
        for names in ("share" if draw(rng, 0, 2) == 0 else "release" for _ in range(length))
    ]


def drive_pool(student, walks, size):
    """Runs beside the student's code: what each operation gave, and the pool after it."""
    seen = []
    for walk in walks:
        pool, rows = student.BlockPool(size), []
        student.BlockPool(size).take()  # another pool, which is none of this one's business
        for name, *args in walk:
            try:
                kind, value = "ok", getattr(pool, name)(*args)
            except (MemoryError, ValueError) as fault:
                kind = "MemoryError" if isinstance(fault, MemoryError) else "ValueError"
                value = None
            except NotImplementedError:
                raise
            except Exception as fault:
                kind, value = type(fault).__name__, None
            rows.append((kind, value, pool.free(), [pool.count(b) for b in range(size)]))
        seen.append(rows)
    return seen


def judge_pool(size):
    def judge(walk, seen):
        model = Pool(size)
        for i, (op, (kind, value, free, counts)) in enumerate(zip(walk, seen, strict=True)):
            want, right = model.apply(op)
            if kind != want:
                return i, f"{want} was expected, {kind} came"
            if want == "ok" and (type(value), value) != (type(right), right):
                return i, f"it returned {value!r}, expected {right!r}"
            if type(free) is not int or free != len(model.queue):
                return i, f"free() is {free!r}, expected {len(model.queue)}"
            if any(type(c) is not int for c in counts) or counts != model.counts:
                return i, f"the owners are {counts}, expected {model.counts}"
        return None

    return judge


def say_pool(op):
    return " ".join(map(str, op))


@exercise(
    "ex2",
    points=2,
    invariant="three blocks: take, take, release 1, release 0; then take gives 2, 1, 0",
    cause="the block freed last is handed out first (a stack), or the smallest number",
)
def test_the_longest_free_comes_first(student, rng):
    walk = [("take",), ("take",), ("release", 1), ("release", 0), *[("take",)] * 4]
    expect_walks(
        lambda walks: student.drive(drive_pool, walks, 3),
        [walk],
        judge_pool(3),
        lambda walk: walk,
        say_pool,
        shorten=False,
    )


@exercise(
    "ex2",
    points=4,
    invariant="after any operations: owners are counted, what has none is free, free + owned = all",
    cause="free at the first release although others own it, an error that changes something, a "
    "free block shared, or a wrong kind of error",
)
def test_random_walks_of_the_pool(student, rng):
    for size in (1, 3, 6):
        expect_walks(
            lambda walks, size=size: student.drive(drive_pool, walks, size),
            [pool_walk(rng, size, 30) for _ in range(20)],
            judge_pool(size),
            lambda walk: walk,
            say_pool,
            shorten=True,
        )


# ---- exercise 3: waste -----------------------------------------------------------------------


def five(value, what):
    """The five ints of a usage."""
    assert type(value) is tuple and len(value) == 5, f"{what} returned {value!r}, not a tuple of 5"
    return tuple(whole(part, f"a part of {what}") for part in value)


@exercise(
    "ex3",
    points=1,
    invariant="prompt 100, answer 25, longest 2048: 2048, 132 and 125 rows",
    cause="the power of two of prompt and answer together, the next power for a power of two, or "
    "an unknown policy that is taken for another",
)
def test_pieces_by_hand(student, rng):
    for policy, right in (("maximum", 2048), ("power2", 132), ("oracle", 125)):
        seen = whole(student.piece(policy, 100, 25, 2048), f"piece({policy!r}, 100, 25, 2048)")
        assert seen == right, f"{policy}: {seen} rows, expected {right}"
    for output, power in ((1, 1), (2, 2), (3, 4), (32, 32), (33, 64)):
        seen = whole(student.piece("power2", 7, output, 20), "piece(...)")
        call = f"piece('power2', prompt 7, output {output}, longest 20)"
        assert seen == 7 + power, f"{call} is {seen}, expected 7 + {power} (it may exceed longest)"
    expect_error(ValueError, lambda: student.piece("best", 1, 1, 9), "the policy 'best'")


@exercise(
    "ex3",
    points=3,
    invariant="A in rows 0-7 with 3 of 6 tokens, B in 12-15 with 4 of 4, 20 rows: 7, 3, 2, and 8 "
    "rows that are external waste for who wants 6, and free for who wants 4 or 9, or nobody",
    cause="pieces not sorted, a gap at an end forgotten, external waste where memory is simply "
    "short, or only the gaps that are too small counted",
)
def test_contiguous_by_hand(student, rng):
    a, b = (0, 8, 3, 6), (12, 16, 4, 4)
    for pieces in ([a, b], [b, a]):
        for wanted, external in ((0, 0), (4, 0), (5, 8), (6, 8), (8, 8), (9, 0), (20, 0)):
            seen = five(student.contiguous_usage(pieces, 20, wanted), "contiguous_usage")
            right = (7, 3, 2, external, 8 - external)
            assert seen == right, f"{wanted} rows wanted: {seen}, expected {right}"
    seen = five(student.contiguous_usage([(4, 8, 1, 2)], 8, 5), "contiguous_usage")
    assert seen == (1, 1, 2, 0, 4), f"rows 4 to 7 of 8: {seen}, expected (1, 1, 2, 0, 4)"
    for pieces in ([(3, 4, 1, 1), (6, 8, 2, 2)], [(0, 2, 2, 2), (4, 5, 1, 1)]):
        # the longest gap stands at the beginning, or at the end
        seen = five(student.contiguous_usage(pieces, 8, 3), "contiguous_usage")
        assert seen == (3, 0, 0, 0, 5), f"gaps of 3 and 2, 3 rows wanted: {seen}, none external"
    for wanted, external in ((3, 0), (4, 4), (5, 0)):  # gaps of 3 and 1
        seen = five(student.contiguous_usage([(5, 6, 1, 1), (0, 2, 2, 2)], 7, wanted), "usage")
        assert seen == (3, 0, 0, external, 4 - external), f"gaps 3 and 1, {wanted} wanted: {seen}"
    seen = five(student.contiguous_usage([], 8, 3), "contiguous_usage")
    assert seen == (0, 0, 0, 0, 8), f"an empty memory: {seen}, expected (0, 0, 0, 0, 8)"


@exercise(
    "ex3",
    points=2,
    invariant="blocks of 4: 3 of 6 tokens: 1 row reserved; 5 of 6: 1 reserved, 2 internal",
    cause="reserved rows beyond the blocks of now, or rows that will still be filled counted lost",
)
def test_paged_by_hand(student, rng):
    for requests, right in (
        ([(3, 6)], (3, 1, 0, 0, 16)),
        ([(5, 6)], (5, 1, 2, 0, 12)),
        ([(4, 9)], (4, 0, 0, 0, 16)),
        ([(0, 6), (3, 6)], (3, 1, 0, 0, 16)),
        ([(5, 6), (3, 6), (4, 4)], (12, 2, 2, 0, 4)),
        ([], (0, 0, 0, 0, 20)),
    ):
        seen = five(student.paged_usage(requests, 4, 5), "paged_usage")
        assert seen == right, f"{requests} in 5 blocks of 4: {seen}, expected {right}"


# ---- exercise 4: sequences -------------------------------------------------------------------


class Tables:
    """The model: what a sequence's tokens are, and which of its blocks are whose.

    A block is a number that is never used again, so blocks with one number are shared.
    """

    def __init__(self, blocks, size):
        self.blocks, self.size, self.texts, self.parts, self.next = blocks, size, {}, {}, 0

    def new(self, count):
        self.next += count
        return list(range(self.next - count, self.next))

    def needed(self, name, tokens):
        """(new blocks, whether one is copied) of an append."""
        length, parts = len(self.texts.get(name, [])), self.parts.get(name, [])
        others = {part for other in self.parts if other != name for part in self.parts[other]}
        copied = tokens > 0 and length % self.size > 0 and parts[-1] in others
        return -(-(length + tokens) // self.size) - len(parts), copied

    def free(self):
        return self.blocks - len({part for parts in self.parts.values() for part in parts})

    def apply(self, op):
        """(what must happen, how many blocks are copied)."""
        name = op[1]
        if op[0] == "append":
            new, copied = self.needed(name, op[2])
            if new + copied > self.free():
                return "MemoryError", 0
            kept = self.parts.get(name, [])
            kept = kept[:-1] if copied else kept
            self.parts[name] = kept + self.new(new + copied)
            self.texts[name] = self.texts.get(name, []) + [None] * op[2]
            return "ok", int(copied)
        if name not in self.texts or (op[0] == "fork" and op[2] in self.texts):
            return "ValueError", 0
        if op[0] == "fork":
            self.texts[op[2]], self.parts[op[2]] = list(self.texts[name]), list(self.parts[name])
        else:
            del self.texts[name], self.parts[name]
        return "ok", 0


NAMES = "ABCD"


def tables_walk(rng, length, most):
    """Random operations; more of what changes something than of what must fail."""
    walk = []
    for _ in range(length):
        name, kind = NAMES[draw(rng, 0, 3)], draw(rng, 0, 9)
        if kind < 6:
            walk.append(("append", name, draw(rng, 0, most)))
        elif kind < 9:
            walk.append(("fork", name, NAMES[draw(rng, 0, 3)]))
        else:
            walk.append(("free", name))
    return walk


def drive_tables(student, walks, blocks, size, names):
    """Runs beside the student's code: what each operation gave, and all tables after it."""
    seen = []
    for walk in walks:
        sequences, rows = student.Sequences(blocks, size), []
        student.Sequences(blocks, size).append("A", 1)  # others are none of its business
        for name, *args in walk:
            try:
                kind, value = "ok", getattr(sequences, name)(*args)
            except (MemoryError, ValueError) as fault:
                kind = "MemoryError" if isinstance(fault, MemoryError) else "ValueError"
                value = None
            except NotImplementedError:
                raise
            except Exception as fault:
                kind, value = type(fault).__name__, None
            tables = {}
            for known in names:
                entry = []
                for method in (sequences.table, sequences.length, sequences.table):
                    try:
                        got = method(known)
                        entry.append(got[:] if isinstance(got, list) else got)
                        got.append(-1) if isinstance(got, list) else None  # the caller may
                    except NotImplementedError:
                        raise
                    except Exception as fault:  # ValueError: it is not known
                        entry.append(type(fault).__name__)
                if entry != ["ValueError"] * 3:
                    tables[known] = tuple(entry)
            rows.append((kind, value, tables, sequences.free_blocks()))
        seen.append(rows)
    return seen


def name_faults(model, tables):
    """What is wrong with the names that table and length know, or None."""
    for name, (table, length, again) in tables.items():
        for call, got in ((f"table({name!r})", table), (f"length({name!r})", length)):
            if isinstance(got, str) and name in model.texts:
                return f"{call} raised {got}, though {name} is known"
            if isinstance(got, str) and got != "ValueError":
                return f"{call} raised {got}; for an unknown name a ValueError is expected"
        if again != table:
            return (
                f"table({name!r}) gave out the list that you keep: the test appended -1 to what it "
                f"got, and table({name!r}) is now {again!r}"
            )
    return None


def table_faults(model, before, tables, free):
    """What is wrong with the tables after an operation, or None."""
    if sorted(tables) != sorted(model.texts):
        return f"there are the sequences {sorted(tables)}, expected {sorted(model.texts)}"
    for name, (table, length, _) in tables.items():
        ints = isinstance(table, list) and all(type(b) is int for b in [*table, length])
        if not ints or not all(0 <= b < model.blocks for b in table):
            return f"the table of {name} is {table!r} with length {length!r}"
        if length != len(model.texts[name]):
            return f"length of {name} is {length}, expected {len(model.texts[name])}"
        if len(table) != len(model.parts[name]):
            return f"{name} has {len(table)} blocks for {length} tokens"
        old = before.get(name, ([], 0))[0][:-1]
        if table[: len(old)] != old:
            return f"the table of {name} was {before[name][0]} and is {table}"
    owners, places = {}, {}
    for name, (table, *_) in tables.items():
        for i, block in enumerate(table):
            owners.setdefault(block, set()).add(model.parts[name][i])
            first, shared = places.setdefault(model.parts[name][i], (name, block))
            if shared != block:
                return (
                    f"{first} has block {shared} where {name} has block {block}, though both have "
                    "the same tokens there: it must be one block, which both share"
                )
    for block, parts in owners.items():
        if len(parts) > 1:
            return f"block {block} is used twice, for different tokens"
    if type(free) is not int or free + len(owners) != model.blocks:
        return f"{free} blocks are free and {len(owners)} in tables, of {model.blocks}"
    return None


def copy_faults(op, copies, expected, before, tables):
    """What is wrong with the pairs that append returned, or None."""
    if op[0] != "append":
        return None
    if not isinstance(copies, list) or len(copies) != expected:
        return f"it returned {copies!r}, expected {expected} pairs"
    if expected:
        right = (before[op[1]][0][-1], tables[op[1]][0][len(before[op[1]][0]) - 1])
        if tuple(copies[0]) != right:
            return f"it returned {copies!r}, expected [{right}]"
    return None


def line_after(line, op, before, tables):
    """(the line of free blocks after an operation, what is wrong or None).

    A copy and the blocks behind it may be taken in either order.
    """
    old, now = ({b for table, *_ in known.values() for b in table} for known in (before, tables))
    taken, first = sorted(now - old), sorted(line[: len(now - old)])
    if taken != first:
        return line, f"it took the blocks {taken}; those that have been free longest are {first}"
    back = before[op[1]][0][::-1] if op[0] == "free" and op[1] in before else []
    return line[len(taken) :] + [b for b in back if b not in now], None


def judge_tables(blocks, size):
    def judge(walk, seen):
        model, memory, before, left, count = Tables(blocks, size), {}, {}, blocks, 0
        line = list(range(blocks))  # free blocks, longest free first
        for i, (op, (kind, copies, tables, free)) in enumerate(zip(walk, seen, strict=True)):
            old = len(model.texts.get(op[1], []))
            want, expected = model.apply(op)
            if kind != want:
                return i, f"{want} was expected, {kind} came"
            wrong = name_faults(model, tables)
            if wrong is None and want != "ok" and (tables, free) != (before, left):
                wrong = f"it raised {want}, as it must, and changed something: {told(tables, free)}"
            wrong = wrong or table_faults(model, before, tables, free)
            if wrong is None and want == "ok":
                wrong = copy_faults(op, copies, expected, before, tables)
            if wrong is not None:
                return i, wrong
            if want == "ok" and op[0] == "append":  # write new numbers, then read all of them
                for a, b in copies:
                    rows = {r: memory.get((a, r)) for r in range(size)}
                    memory |= {(b, r): word for r, word in rows.items()}
                for p in range(old, len(model.texts[op[1]])):
                    count += 1
                    model.texts[op[1]][p] = count
                    memory[tables[op[1]][0][p // size], p % size] = count
            for name, text in model.texts.items():
                read = [
                    memory.get((tables[name][0][p // size], p % size)) for p in range(len(text))
                ]
                if read != text:
                    p = [x == y for x, y in zip(read, text, strict=True)].index(False)
                    block = tables[name][0][p // size]
                    return i, f"block {block} was written over while {name} reads it"
            line, wrong = line_after(line, op, before, tables)
            if wrong is not None:
                return i, f"{wrong}; what raises must leave their order as it was, too"
            before, left = tables, free
        return None

    return judge


def told(tables, free):
    """All tables in words."""
    said = [f"{name} has the table {table}" for name, (table, *_) in tables.items()]
    return ", ".join([*said, f"{free} blocks are free"])


def say_tables(op):
    name, who, *what = op
    if name == "fork":
        return f"fork {who} to {what[0]}"
    return f"{name} {who}" + (f" {what[0]}" if what else "")


def full_walks(blocks, size):
    """Memory that is full when a copy is due, and that must be all free again at the end."""
    base = [("append", "A", size + 1), ("fork", "A", "B")]
    fill, empty = ("append", "C", (blocks - 3) * size), [("free", "A"), ("free", "B")]
    return [
        # one block is free, and two are needed: for the copy and behind it
        [*base, fill, ("append", "B", size), ("append", "B", 1), ("append", "B", size)],
        [*base, ("append", "B", 1), *empty, ("append", "C", blocks * size)],
    ]


def check_tables(student, walks, blocks, size, shorten):
    expect_walks(
        lambda walks: student.drive(drive_tables, walks, blocks, size, NAMES),
        walks,
        judge_tables(blocks, size),
        lambda walk: walk,
        say_tables,
        shorten,
    )


@exercise(
    "ex4",
    points=2,
    invariant="blocks of 4, append A 6, fork A to B, append B 1: block 1 is copied to 2, and A "
    "then writes in place",
    cause="no copy, a copy of the whole table or at the fork, or a copy for the last owner too",
)
def test_copy_on_write_by_hand(student, rng):
    walk = [("append", "A", 6), ("fork", "A", "B"), ("append", "B", 1), ("append", "A", 1)]
    check_tables(student, [walk], 4, 4, shorten=False)
    [rows] = student.drive(drive_tables, [walk], 4, 4, NAMES)
    seen = [value for _, value, *_ in rows]
    assert seen[2] == [(1, 2)] and rows[3][2]["A"][0] == [0, 1], (
        f"append B 1 returned {seen[2]!r}, expected [(1, 2)]; A's table is then "
        f"{rows[3][2]['A'][0]}, expected [0, 1]"
    )
    full = [("append", "A", 8), ("fork", "A", "B"), ("append", "B", 1), ("append", "A", 0)]
    check_tables(student, [full], 4, 4, shorten=False)


@exercise(
    "ex4",
    points=3,
    invariant="after any operations every sequence reads what it wrote, no block is used twice, "
    "free + used = all, and what raises changes nothing",
    cause="one list for two tables, blocks lost where an error comes halfway, a full block copied, "
    "one that was shared released for all, or `table` returning the list that the object keeps",
)
def test_random_walks_of_sequences(student, rng):
    for blocks, size in ((4, 2), (6, 3), (9, 1)):
        walks = [tables_walk(rng, 25, 2 * size) for _ in range(20)]
        check_tables(student, full_walks(blocks, size) + walks, blocks, size, shorten=True)


@exercise(
    "ex4",
    points=1,
    invariant="free gives back the last block first: of blocks 0 1 2 the next to be taken is 2",
    cause="released in the order of the text, so that beginnings are overwritten first",
)
def test_the_tail_is_given_back_first(student, rng):
    walk = [("append", "A", 6), ("free", "A"), ("append", "B", 6)]
    check_tables(student, [walk], 3, 2, shorten=False)
    [rows] = student.drive(drive_tables, [walk], 3, 2, NAMES)
    table = rows[2][2]["B"][0]
    assert table == [2, 1, 0], f"A had 0 1 2 and ended; B then has {table}, expected [2, 1, 0]"


# ---- exercise 5: prefixes --------------------------------------------------------------------


def asked_rightly(key, tokens):
    right = type(key) is int and type(tokens) is tuple and all(type(t) is int for t in tokens)
    assert right, f"hash_block was called with {key!r} and {tokens!r}, not an int and a tuple"


def mixed(key, tokens):
    """A hash for tests: a number that depends on everything."""
    asked_rightly(key, tokens)
    for token in (len(tokens), *tokens):
        key = (key * 1_000_003 + token + 1) % 2**61
    return key


def weak(key, tokens):
    """A hash that collides: the order of tokens does not matter to it."""
    asked_rightly(key, tokens)
    return key + sum(tokens) + 1


def known(text, size, blocks, hash_block):
    """{key: (block, tokens)} of the full blocks of a text."""
    found, key = {}, 0
    for i, block in enumerate(blocks):
        key = hash_block(key, tuple(text[i * size : (i + 1) * size]))
        found[key] = (block, text[: (i + 1) * size])
    return found


@exercise(
    "ex5",
    points=2,
    invariant="a key for each full block, made of the key before and a tuple of its tokens",
    cause="a key for the unfinished block, the chain not carried on, or all tokens hashed again",
)
def test_chain_by_hand(student, rng):
    text, asked = [5, 6, 7, 8, 9], []

    def hash_block(key, tokens):
        asked_rightly(key, tokens)
        asked.append((key, tokens))
        return 10 * key + len(asked)

    keys, right = student.chain(text, 2, hash_block), [(0, (5, 6)), (1, (7, 8))]
    assert asked == right, f"text {text}: hash_block was called with {asked}, expected {right}"
    assert keys == [1, 12], f"the keys are {keys}, expected [1, 12]"
    for tokens, count in (([], 0), ([1], 0), ([1, 2], 1), (list(range(9)), 4)):
        keys = student.chain(tokens, 2, mixed)
        assert isinstance(keys, list) and len(keys) == count, (
            f"{len(tokens)} tokens in blocks of 2 have the keys {keys}, expected {count} of them"
        )


@exercise(
    "ex5",
    points=2,
    invariant="found up to the first miss, and never the block of the last token",
    cause="a walk that goes on after a miss, or a prompt that is found whole, so that nothing is "
    "left to compute",
)
def test_match_by_hand(student, rng):
    text = [5, 6, 7, 8, 9, 10]
    found = known(text, 2, [4, 0, 3], mixed)
    for prompt, right in (
        ([5, 6, 7, 8, 9], [4, 0]),
        ([5, 6, 7, 8], [4]),
        ([5, 6, 7, 8, 9, 10], [4, 0]),
        ([*text, 1], [4, 0, 3]),
        ([5, 6, 1, 1, 9, 10, 1], [4]),
        ([1, 1, 7, 8, 9], []),
        ([5], []),
    ):
        blocks = student.match(prompt, 2, mixed, found)
        assert blocks == right, f"prompt {prompt}: blocks {blocks}, expected {right}"
    middle = {key: value for key, value in found.items() if value[0] != 0}
    blocks = student.match([*text, 1], 2, mixed, middle)
    assert blocks == [4], f"the second block is not known: blocks {blocks}, expected [4]"


@exercise(
    "ex5",
    points=2,
    invariant="a key is no proof: the tokens of the block, and those before it, are compared",
    cause="the hash trusted, or only the tokens of the block compared",
)
def test_a_hash_that_collides(student, rng):
    found = known([1, 2, 3, 4], 2, [7, 5], weak)
    for prompt, right in (
        ([1, 2, 3, 4, 9], [7, 5]),
        ([2, 1, 3, 4, 9], []),
        ([1, 2, 4, 3, 9], [7]),
    ):
        blocks = student.match(prompt, 2, weak, found)
        assert blocks == right, f"known 1 2 3 4, prompt {prompt}: {blocks}, expected {right}"
    first = {weak(0, (1, 2)): (7, [1, 2]), weak(weak(0, (1, 2)), (3, 4)): (5, [2, 1, 3, 4])}
    blocks = student.match([1, 2, 3, 4, 9], 2, weak, first)
    assert blocks == [7], f"block 5 holds 3 4 after 2 1, not after 1 2: {blocks}, expected [7]"
    first = {weak(0, (1, 2)): (7, [2, 1]), weak(weak(0, (1, 2)), (3, 4)): (5, [1, 2, 3, 4])}
    blocks = student.match([1, 2, 3, 4, 9], 2, weak, first)
    assert blocks == [], f"block 7 holds 2 1, so the walk ends there: {blocks}, expected []"
    for other in ([1], [1, 2, 3, 4]):
        blocks = student.match([1, 2, 3, 4, 9], 2, weak, {weak(0, (1, 2)): (7, other)})
        assert blocks == [], f"block 7 holds the end of {other}, not of [1, 2]: {blocks}"


# ---- exercise 6: attention -------------------------------------------------------------------


def begin(heads, d):
    return torch.full((heads,), -math.inf), torch.zeros(heads), torch.zeros(heads, d)


def absorbed(student, state, scores, values):
    value = student.absorb(state, scores, values)
    shapes = (scores.shape[:1], scores.shape[:1], values[:, 0].shape)
    assert isinstance(value, tuple) and len(value) == 3, f"absorb returned {type(value).__name__}"
    for part, name, shape in zip(value, "mta", shapes, strict=True):
        expect_tensor(part, f"{name} of absorb", torch.float32, tuple(shape))
    return value


@exercise(
    "ex6",
    points=2,
    invariant="after any blocks, a / t is softmax(all scores) values, and m the largest score",
    cause="t or a not corrected when a larger score comes, the largest score not taken off, or "
    "-inf - -inf",
)
def test_online_softmax(student, rng):
    s, v = torch.tensor([[1.0, 3.0, 5.0, 2.0]]), torch.tensor([[[10.0], [20.0], [30.0], [40.0]]])
    state = absorbed(student, begin(1, 1), s[:, :2], v[:, :2])
    expect_close(state[1], torch.tensor([1.1353353]), what="t after 1, 3", rtol=1e-6)
    state = absorbed(student, state, s[:, 2:], v[:, 2:])
    assert state[0].tolist() == [5.0], f"m is {state[0].tolist()}, expected 5"
    expect_close(state[2] / state[1][:, None], torch.tensor([[28.98475]]), what="a / t", rtol=1e-6)
    for size, shift in ((1.0, 0.0), (1e4, 0.0), (1.0, -200.0)):
        scores = torch.randn(3, 12, generator=rng) * size + shift
        values = torch.rand(3, 12, 5, generator=rng) + 1  # no cancellation
        state = begin(3, 5)
        for cut in (slice(0, 1), slice(1, 7), slice(7, 12)):
            state = absorbed(student, state, scores[:, cut], values[:, cut])
        p = scores.double().softmax(-1)
        right = (p[:, None] @ values.double()).squeeze(1)
        # differences of scores are rounded to FLOAT32 of their size, and so are exponents
        what = f"scores of size {size:g} around {shift:g}: a / t"
        bound = FLOAT32 * (64 + 16 * float(scores.abs().max()))
        seen = state[2] / state[1][:, None]
        expect_close(seen, right, what=what, rtol=min(bound, 0.2))


def scattered(rng, length, size, heads, d, spare=2):
    """(q, k, v, table, keys, values): blocks in random order, NaN in every row not in use."""
    query_heads, kv_heads = heads
    used = -(-length // size)
    order = torch.randperm(used + spare, generator=rng).tolist()
    k, v = (torch.full((used + spare, size, kv_heads, d), math.nan) for _ in range(2))
    keys, values = (torch.randn(length, kv_heads, d, generator=rng) for _ in range(2))
    values = values.sigmoid() + 1  # no cancellation
    for p in range(length):
        k[order[p // size], p % size], v[order[p // size], p % size] = keys[p], values[p]
    return torch.randn(query_heads, d, generator=rng), k, v, [*order[:used], 999], keys, values


def exact(q, keys, values):
    """Attention in float64, [H, d]."""
    group = q.shape[0] // keys.shape[1]
    k, v = (x.double().repeat_interleave(group, 1).transpose(0, 1) for x in (keys, values))
    s = (k @ q.double()[:, :, None]).squeeze(-1) / math.sqrt(q.shape[1])
    return (s.softmax(-1)[:, None] @ v).squeeze(1)


def attend_to_views(student, q, k, v, table, length):
    """Runs beside the student's code: on the way there a view becomes a tensor of its own."""
    k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v))
    return student.paged_attention(q, k, v, table, length)


def attend(student, q, k, v, table, length):
    o = student.paged_attention(q, k, v, table, length)
    return expect_tensor(o, "paged_attention(...)", torch.float32, q.shape)


def expect_attention(o, q, keys, values, what, rtol):
    """As expect_close; where o is what a usual mistake gives, that is said."""
    assert not o.isnan().any(), (
        f"{what} is NaN: rows beyond the length, and blocks that are not needed, hold NaN here, "
        "and NaN times 0 is NaN"
    )
    group, right = q.shape[0] // keys.shape[1], exact(q, keys, values)
    turned = exact(q, keys.repeat(1, group, 1), values.repeat(1, group, 1))
    for wrong, words in (
        (exact(q * math.sqrt(q.shape[1]), keys, values), "without a division by sqrt(d)"),
        (turned, "if query head h uses key head h % Hkv; it must be h // (H / Hkv)"),
    ):
        near = (o - wrong).abs().max() <= 1e-4 < 1e-2 < (wrong - right).abs().max()
        assert not near, f"{what} is what comes out {words}"
    expect_close(o, right, what=what, rtol=rtol)


@exercise(
    "ex6",
    points=3,
    invariant="attention over blocks is attention over the same keys side by side",
    cause="the table not followed, rows beyond the length read, heads in the wrong order, no "
    "division by sqrt(d), `view` on pages that are not contiguous, or an m that begins at 0",
)
def test_equal_to_contiguous(student, rng):
    for length, size, heads in ((8, 4, (2, 2)), (5, 16, (3, 1)), (7, 1, (4, 2)), (10, 4, (4, 2))):
        q, k, v, table, keys, values = scattered(rng, length, size, heads, 8)
        o = attend(student, q, k, v, table, length)
        what = f"{length} keys in blocks of {size}, heads {heads[0]} and {heads[1]}: o"
        # scores stay below 30: 16 roundings of a score of that size move exp by less than 1e-4
        expect_attention(o, q, keys, values, what, 1e-4)
    o = student.drive(attend_to_views, q, k, v, table, length)
    expect_tensor(o, "paged_attention of pages that are views", torch.float32, q.shape)
    expect_close(o, exact(q, keys, values), what="pages that are views: o", rtol=1e-4)
    # all scores far below 0: m must not begin at 0
    q, k, v, table, keys, values = scattered(rng, 9, 4, (2, 1), 8)
    q[:, 0], k[..., 0], keys[..., 0] = -64.0, 8.0, 8.0
    o = attend(student, q, k, v, table, 9)
    # scores near -181: 8 roundings of products and sums up to 600, divided by sqrt(8)
    bound = 2 * 8 * 600 / math.sqrt(8) * FLOAT32
    expect_close(o, exact(q, keys, values), what="scores around -181: o", rtol=bound)


@exercise(
    "ex6",
    points=1,
    invariant="bfloat16 keys are computed with in float32",
    cause="products, exponentials or sums in the dtype of the keys",
)
def test_bfloat16_keys(student, rng):
    for _ in range(4):
        q, k, v, table, keys, values = scattered(rng, 40, 4, (2, 2), 16)
        q = 4 * q  # scores of some 10: in bfloat16 they are off by hundredths
        o = attend(student, *(x.bfloat16() for x in (q, k, v)), table, 40)
        right = exact(*(x.bfloat16() for x in (q, keys, values)))
        expect_close(o, right, what="o of bfloat16 keys", rtol=1e-4)
