"""Hidden tests of lab06: row-by-row brute force, longer walks, and what breaks real code.

Inputs are drawn for each submission.  Objects are driven by walks in one call, and judged by what a
reader of the memory sees: every sequence reads what it wrote, and nothing is lost.
"""

import math

import torch

from efflib.lab import exercise, expect_close, expect_error, expect_tensor
from efflib.lab.walks import expect_walks

FLOAT32 = 2.0**-24  # relative error of one float32 rounding


def draw(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


def many(rng, count, low, high):
    return torch.randint(low, high + 1, (count,), generator=rng).tolist()


def ints(values):
    return all(type(value) is int for value in values)


# ---- exercise 1 ------------------------------------------------------------------------------


@exercise(
    "ex1",
    points=3,
    invariant="the number of blocks is the least that holds all tokens, for every size",
    cause="one block more where they are just full, for some sizes or numbers only",
)
def test_least_number_of_blocks(student, rng):
    cases = [(n, size) for size in (1, 2, 3, 7, 16) for n in range(2 * size + 2)]
    cases += [(draw(rng, 1, 10**6), draw(rng, 1, 300)) for _ in range(20)]
    for tokens, size in cases:
        blocks = student.blocks_for(tokens, size)
        assert type(blocks) is int, f"blocks_for returned {type(blocks).__name__}"
        assert blocks * size >= tokens > (blocks - 1) * size, f"{tokens}, {size}: {blocks}"


@exercise(
    "ex1",
    points=3,
    invariant="slots of any positions, in any shape and order, against the rows counted one by one",
    cause="block_size taken for a power of two, positions sorted, repeated ones lost, or something "
    "kept from the last call",
)
def test_slots_against_counted_rows(student, rng):
    for size in (1, 2, 3, 5, 16):
        for blocks in (1, 2, 6):
            table = torch.randperm(40, generator=rng)[:blocks].tolist()
            rows = [block * size + r for block in table for r in range(size)]
            for shape in ((), (7,), (2, 3), (3, 1, 2)):
                positions = torch.randint(blocks * size, shape, generator=rng)
                slots = student.slots_of(table, positions, size)
                expect_tensor(slots, "slots_of(...)", torch.int64, shape)
                right = torch.tensor([rows[p] for p in positions.flatten().tolist()])
                assert torch.equal(slots.flatten(), right), f"table {table}, size {size}"
    huge = student.slots_of([2**33], torch.tensor([2]), 3)
    expect_tensor(huge, "slots_of(...)", torch.int64, (1,))
    assert huge.tolist() == [3 * 2**33 + 2], "slots of a huge block"


@exercise(
    "ex1",
    points=3,
    invariant="ValueError on both sides of a table, wherever the bad position stands",
    cause="only the first or the last position checked, or only the largest",
)
def test_bad_positions_anywhere(student, rng):
    for size, blocks in ((4, 2), (3, 1), (1, 5)):
        table = torch.randperm(9, generator=rng)[:blocks].tolist()
        top = size * blocks
        ends = student.slots_of(table, torch.tensor([top - 1, 0]), size)
        expect_tensor(ends, "slots_of(...)", torch.int64, (2,))
        assert ends.tolist() == [table[-1] * size + size - 1, table[0] * size], "the ends"
        for bad in (-1, -top, top, top + 1, 10**6):
            for at in range(3):
                positions = torch.randint(top, (3,), generator=rng)
                positions[at] = bad
                expect_error(
                    ValueError,
                    lambda p=positions, t=table, s=size: student.slots_of(t, p, s),
                    f"position {bad}",
                )
    expect_error(ValueError, lambda: student.slots_of([], torch.tensor([0]), 4), "no blocks")


# ---- exercise 2 ------------------------------------------------------------------------------


def drive_pool(student, walks, size):
    """Runs beside the student's code: what each operation gave, and the pool after it."""
    seen = []
    for walk in walks:
        pool, other, rows = student.BlockPool(size), student.BlockPool(size), []
        for name, *args in walk:
            if other.free():
                other.take()
            try:
                kind, value = "ok", getattr(pool, name)(*args)
            except (MemoryError, ValueError) as fault:
                kind = "MemoryError" if isinstance(fault, MemoryError) else "ValueError"
                value = None
            except Exception as fault:
                kind, value = type(fault).__name__, None
            rows.append((kind, value, pool.free(), [pool.count(b) for b in range(size)]))
        seen.append(rows)
    return seen


def random_pool_walk(rng, size, length):
    """Mostly blocks that have owners, so that counts grow; sometimes one that is free."""
    walk, counts = [], [0] * size
    queue = list(range(size))
    for _ in range(length):
        owned = [b for b in range(size) if counts[b]]
        kind = draw(rng, 0, 9)
        if kind < 4 or not owned:
            walk.append(("take",))
            if queue:
                counts[queue.pop(0)] = 1
            continue
        block = owned[draw(rng, 0, len(owned) - 1)] if kind < 9 else draw(rng, 0, size - 1)
        name = "share" if kind < 6 or (kind == 9 and draw(rng, 0, 1)) else "release"
        walk.append((name, block))
        if counts[block]:
            counts[block] += 1 if name == "share" else -1
            queue += [block] if counts[block] == 0 else []
    return walk


def judge_pool(size):
    def judge(walk, seen):
        queue, counts = list(range(size)), [0] * size
        for i, ((name, *args), row) in enumerate(zip(walk, seen, strict=True)):
            kind, value = "ok", None
            if name == "take":
                kind = "ok" if queue else "MemoryError"
                value = queue.pop(0) if queue else None
                if value is not None:
                    counts[value] = 1
            elif not counts[args[0]]:
                kind = "ValueError"
            else:
                counts[args[0]] += 1 if name == "share" else -1
                queue += [args[0]] if counts[args[0]] == 0 else []
            same = list(row) == [kind, value, len(queue), counts]
            if not same or not ints([*row[3], row[2]]) or type(row[1]) is not type(value):
                return i, "the pool is not as it must be"
        return None

    return judge


def check_pool(student, walks, size):
    expect_walks(
        lambda walks: student.drive(drive_pool, walks, size),
        walks,
        judge_pool(size),
        lambda walk: walk,
        str,
        shorten=False,
    )


@exercise(
    "ex2",
    points=4,
    invariant="after any operations: free + owned = all, owners are counted, and take gives the "
    "block that has been free longest",
    cause="a block free while it has owners, counted twice in the queue, or handed out in another "
    "order",
)
def test_long_walks_of_the_pool(student, rng):
    for size in (1, 2, 5, 12):
        check_pool(student, [random_pool_walk(rng, size, 60) for _ in range(15)], size)


@exercise(
    "ex2",
    points=3,
    invariant="an error changes nothing: the pool goes on as if the call had not been",
    cause="counted before checked, negative counts, or a free block that share takes out of the "
    "queue",
)
def test_errors_change_nothing(student, rng):
    for size in (1, 3):
        walk = [("release", 0), ("share", size - 1), *[("take",)] * (size + 2)]
        walk += [("release", b) for b in range(size)] + [("release", 0), ("share", 0)]
        walk += [("take",)] * (size + 1) + [("share", 0), ("release", 0), ("release", 0)] * 2
        walk += [("take",), ("take",)]
        check_pool(student, [walk], size)


@exercise(
    "ex2",
    points=2,
    invariant="many owners: the block is free after exactly as many releases",
    cause="a flag in place of a count, or counts that stop at two",
)
def test_many_owners(student, rng):
    for owners in (2, 3, 9):
        walk = [("take",), *[("share", 0)] * (owners - 1), ("take",)]
        walk += [("release", 0)] * (owners - 1) + [("take",), ("release", 0), ("take",)]
        check_pool(student, [walk, walk[:-1]], 3)


# ---- exercise 3 ------------------------------------------------------------------------------


def random_pieces(rng, size):
    """(pieces, kind of every row) of a memory in random pieces, in random order."""
    rows, pieces, at = [], [], 0
    while at < size:
        length = min(draw(rng, 1, 6), size - at)
        if draw(rng, 0, 2):
            total = draw(rng, 1, length)
            tokens = draw(rng, 1, total)
            pieces.append((at, at + length, tokens, total))
            rows += ["used"] * tokens + ["reserved"] * (total - tokens)
            rows += ["internal"] * (length - total)
        else:
            rows += [None] * length
        at += length
    order = torch.randperm(len(pieces), generator=rng).tolist()
    return [pieces[i] for i in order], rows


@exercise(
    "ex3",
    points=4,
    invariant="all five kinds, with every row of the memory labelled one by one, for every wanted "
    "length",
    cause="gaps at the ends, neighbouring gaps or pieces, or both sides of the limits of what is "
    "external",
)
def test_pieces_row_by_row(student, rng):
    ends = ([(14, 16, 2, 2), (9, 12, 1, 2)], [(6, 9, 1, 2), (2, 4, 2, 2)])
    for pieces in ends:  # the only gap that is long enough stands at an end
        seen = student.contiguous_usage(pieces, 18, 9)
        assert seen == (3, 1, 1, 0, 13), "a gap at an end"
    for _ in range(12):
        size = draw(rng, 1, 30)
        pieces, rows = random_pieces(rng, size)
        gaps = "".join("." if row is None else "x" for row in rows).split("x")
        longest, total = max(map(len, gaps)), sum(map(len, gaps))
        for wanted in {0, 1, longest, longest + 1, total, total + 1, draw(rng, 0, size)}:
            external = total if wanted and longest < wanted <= total else 0
            right = tuple(rows.count(kind) for kind in ("used", "reserved", "internal"))
            right += (external, total - external)
            seen = student.contiguous_usage(pieces, size, wanted)
            assert seen == right and type(seen) is tuple and ints(seen), "the five kinds differ"


@exercise(
    "ex3",
    points=3,
    invariant="blocks filled row by row: what each request has, will use and will not",
    cause="requests that are done or just fill a block, a total inside the last block",
)
def test_blocks_row_by_row(student, rng):
    for size in (1, 2, 3, 8):
        for _ in range(8):
            requests, rows = [], []
            for _ in range(draw(rng, 0, 5)):
                total = draw(rng, 1, 4 * size)
                tokens = draw(rng, 1, total)
                mine = ["used"] * tokens
                while len(mine) % size:
                    mine.append("reserved" if len(mine) < total else "internal")
                requests.append((tokens, total))
                rows += mine
            spare = draw(rng, 0, 4)
            right = tuple(rows.count(kind) for kind in ("used", "reserved", "internal"))
            right += (0, spare * size)
            seen = student.paged_usage(requests, size, len(rows) // size + spare)
            assert seen == right and type(seen) is tuple and ints(seen), "the five kinds differ"


@exercise(
    "ex3",
    points=2,
    invariant="power2 reserves at least the answer and less than twice of it, exactly",
    cause="a logarithm that is off by one for large numbers, or longest taken for a limit",
)
def test_powers_of_two(student, rng):
    outputs = [*range(1, 34), 2**29 - 1, 2**29, 2**29 + 1]
    for output in [*outputs, *many(rng, 20, 1, 10**6)]:
        prompt, longest = draw(rng, 1, 500), draw(rng, 1, 4096)
        seen = student.piece("power2", prompt, output, longest)
        assert type(seen) is int, f"piece returned {type(seen).__name__}"
        power = seen - prompt
        assert power >= output > power / 2 and power & (power - 1) == 0, "power2"
        assert student.piece("maximum", prompt, output, longest) == longest, "maximum"
        assert student.piece("oracle", prompt, output, longest) == prompt + output, "oracle"
    for policy in ("", "Maximum", "power", None):
        expect_error(ValueError, lambda p=policy: student.piece(p, 1, 1, 9), "an unknown policy")


# ---- exercise 4 ------------------------------------------------------------------------------


def drive_tables(student, walks, blocks, size, names):
    """Runs beside the student's code: what each operation gave, and all tables after it."""
    seen = []
    for walk in walks:
        sequences, other, rows = student.Sequences(blocks, size), student.Sequences(3, 2), []
        for name, *args in walk:
            other.append("A", 1) if other.free_blocks() else other.free("A")
            try:
                kind, value = "ok", getattr(sequences, name)(*args)
            except (MemoryError, ValueError) as fault:
                kind = "MemoryError" if isinstance(fault, MemoryError) else "ValueError"
                value = None
            except Exception as fault:
                kind, value = type(fault).__name__, None
            tables = {}
            for known in names:
                entry = []
                for method in (sequences.length, sequences.table):
                    try:
                        entry.append(method(known))
                    except ValueError:  # it is not known
                        entry.append(None)
                if entry != [None, None]:
                    tables[known] = (None if entry[1] is None else entry[1][:], entry[0])
                if isinstance(entry[1], list):
                    entry[1].clear()  # the caller may change it
            rows.append((kind, value, tables, sequences.free_blocks()))
        seen.append(rows)
    return seen


class Reader:
    """A memory that is written and read through the student's tables, and parts that are shared.

    parts: for each sequence numbers of its blocks; equal numbers are one block.
    """

    def __init__(self, blocks, size):
        self.blocks, self.size, self.rows = blocks, size, {}
        self.texts, self.parts, self.count = {}, {}, 0

    def fresh(self, count):
        self.count += count
        return list(range(self.count - count, self.count))

    def expected(self, op):
        """(kind, copies) of an operation, which is done."""
        name, who, *args = op
        parts = self.parts.get(who, [])
        if name == "append":
            length = len(self.texts.get(who, []))
            shared = any(parts[-1:] == p[-1:] for n, p in self.parts.items() if n != who)
            copied = bool(args[0] and length % self.size and shared)
            new = -(-(length + args[0]) // self.size) - len(parts)
            used = {part for mine in self.parts.values() for part in mine}
            if new + copied > self.blocks - len(used):
                return "MemoryError", 0
            self.parts[who] = parts[: len(parts) - copied] + self.fresh(new + copied)
            self.texts[who] = self.texts.get(who, []) + self.fresh(args[0])
            return "ok", int(copied)
        if who not in self.parts or (name == "fork" and args[0] in self.parts):
            return "ValueError", 0
        if name == "fork":
            self.parts[args[0]], self.texts[args[0]] = list(parts), list(self.texts[who])
        else:
            del self.parts[who], self.texts[who]
        return "ok", 0

    def write(self, op, copies, before, tables):
        """Does the copies, then writes the new tokens of an append."""
        for a, b in copies:
            for r in range(self.size):
                self.rows[b, r] = self.rows.get((a, r))
        table, text = tables[op[1]][0], self.texts[op[1]]
        for p in range(len(text) - op[2], len(text)):
            self.rows[table[p // self.size], p % self.size] = text[p]

    def holds(self, tables, free):
        """Whether every sequence reads what it wrote, and nothing is lost or used twice."""
        if sorted(tables) != sorted(self.texts):
            return False
        used = {}
        for name, (table, length) in tables.items():
            text, parts = self.texts[name], self.parts[name]
            if type(table) is not list or not ints([*table, length]) or length != len(text):
                return False
            if len(table) != len(parts) or not set(table) <= set(range(self.blocks)):
                return False
            spots = [(table[p // self.size], p % self.size) for p in range(length)]
            if [self.rows.get(spot) for spot in spots] != text:
                return False
            for part, block in zip(parts, table, strict=True):
                used.setdefault(part, set()).add(block)
        blocks = {block for mine in used.values() for block in mine}
        one_each = all(len(mine) == 1 for mine in used.values()) and len(blocks) == len(used)
        return one_each and type(free) is int and free + len(blocks) == self.blocks


def judge_tables(blocks, size):
    def judge(walk, seen):
        reader, before = Reader(blocks, size), {}
        for i, (op, (kind, copies, tables, free)) in enumerate(zip(walk, seen, strict=True)):
            want, pairs = reader.expected(op)
            if kind != want or (want != "ok" and tables != before):
                return i, "another result, or a failed call changed something"
            if want == "ok" and op[0] == "append":
                old = before.get(op[1], ([], 0))[0]
                right = [(old[-1], tables[op[1]][0][len(old) - 1])] if pairs else []
                if type(copies) is not list or [tuple(c) for c in copies] != right:
                    return i, "other blocks were to be copied"
                if tables[op[1]][0][: len(old) - pairs] != old[: len(old) - pairs]:
                    return i, "an entry of the table changed"
                reader.write(op, copies, before, tables)
            if not reader.holds(tables, free):
                return i, "a sequence does not read what it wrote, or a block is lost"
            before = tables
        return None

    return judge


def check_tables(student, walks, blocks, size, names="ABCDE"):
    expect_walks(
        lambda walks: student.drive(drive_tables, walks, blocks, size, names),
        walks,
        judge_tables(blocks, size),
        lambda walk: walk,
        str,
        shorten=False,
    )


def random_tables_walk(rng, length, most, names="ABCDE"):
    walk = []
    for _ in range(length):
        name, kind = names[draw(rng, 0, len(names) - 1)], draw(rng, 0, 11)
        if kind < 7:
            walk.append(("append", name, draw(rng, 0, most) if kind else 0))
        elif kind < 10:
            walk.append(("fork", name, names[draw(rng, 0, len(names) - 1)]))
        else:
            walk.append(("free", name))
    return walk


@exercise(
    "ex4",
    points=3,
    invariant="after any operations every sequence reads what it wrote; free + used = all blocks",
    cause="a block written while others own it, lost when a copy was taken, or freed while in use",
)
def test_long_walks_of_sequences(student, rng):
    for blocks, size in ((3, 2), (6, 4), (12, 3), (10, 1), (8, 7)):
        walks = [random_tables_walk(rng, 50, most) for most in (1, 2, size, 2 * size) * 3]
        base = [("append", "A", size + 1), ("fork", "A", "B"), ("fork", "B", "D")]
        full = ("append", "C", (blocks - 3) * size)  # one block is left, for a copy and one more
        ends = [("append", "D", 1), *(("free", name) for name in "ABD")]
        walks += [
            [*base, full, ("append", "B", size)],
            [*base, *ends, ("append", "C", blocks * size)],
        ]
        check_tables(student, walks, blocks, size)


@exercise(
    "ex4",
    points=3,
    invariant="where blocks run out, MemoryError comes exactly then, and nothing has changed",
    cause="the block of the copy not counted, or counted where none is needed; a name that exists "
    "after its first append failed",
)
def test_when_blocks_run_out(student, rng):
    for size in (2, 5):
        base = [("append", "A", size + 1), ("fork", "A", "B")]
        for blocks in (2, 3, 4):
            walks = []
            for name, tokens in (("A", 1), ("B", size), ("B", size + 1), ("C", size), ("C", 1)):
                walks.append([*base, ("append", name, tokens), ("append", "A", 1), ("free", "B")])
                walks.append([*base, ("append", name, 3 * size), ("free", "A"), ("append", "B", 1)])
                walks.append([*base, ("append", "C", 9 * size), ("fork", "C", "D"), ("free", "C")])
            walks.append([*base, ("append", "A", 0), ("append", "C", 0), ("fork", "C", "D")])
            check_tables(student, walks, blocks, size)


@exercise(
    "ex4",
    points=2,
    invariant="beams: many forks of a fork, of which each is dropped or goes on",
    cause="owners counted by tables of the first sequence only, or the last owner copied",
)
def test_beams(student, rng):
    for size in (3, 4):
        walk, alive, count = [("append", "0", 2 * size + 1)], ["0"], 0
        for _ in range(6):
            children = []
            for _ in range(3):
                count += 1
                children.append(str(count))
                walk.append(("fork", alive[draw(rng, 0, len(alive) - 1)], children[-1]))
            walk += [("free", name) for name in alive]
            walk += [("append", name, draw(rng, 0, 2)) for name in children]
            alive = children
        names = [str(i) for i in range(count + 1)]
        check_tables(student, [walk], 30, size, names)


@exercise(
    "ex4",
    points=1,
    invariant="a sequence that ends gives back its last block first, also where others keep some",
    cause="released from the beginning of the text",
)
def test_tails_leave_first(student, rng):
    for shared in (1, 2):
        walk = [("append", "A", 2 * shared), ("fork", "A", "B"), ("append", "A", 8 - 2 * shared)]
        walk += [("free", "A"), ("append", "C", 2 * (4 - shared))]
        check_tables(student, [walk], 4, 2)
        [rows] = student.drive(drive_tables, [walk], 4, 2, "ABC")
        tail = rows[2][2]["A"][0][shared:]
        assert rows[4][2]["C"][0] == tail[::-1], "the blocks came back in another order"


# ---- exercise 5 ------------------------------------------------------------------------------


def mixed(salt):
    def hash_block(key, tokens):
        for token in (salt, len(tokens), *tokens):
            key = (key * 1_000_003 + token + 1) % 2**61
        return key

    return hash_block


def weak(key, tokens):
    """Three values only: nearly everything collides."""
    return (key + sum(tokens)) % 3


@exercise(
    "ex5",
    points=3,
    invariant="the chain of any text, each full block hashed once, in order",
    cause="an unfinished block hashed, the first key not 0, or all tokens hashed for each block",
)
def test_chains(student, rng):
    for size in (1, 2, 3, 8):
        for length in (0, 1, size - 1, size, size + 1, 3 * size, 5 * size + 1):
            text, calls = many(rng, length, 0, 9), []
            real = mixed(draw(rng, 0, 99))

            def hash_block(key, tokens, calls=calls, real=real):
                calls.append((key, tokens))
                return real(key, tokens)

            keys, key, right = student.chain(text, size, hash_block), 0, []
            for i in range(length // size):
                part = tuple(text[i * size : (i + 1) * size])
                right.append((key, part))
                key = real(key, part)
            assert calls == right, "hash_block was called otherwise"
            expected = [real(*call) for call in right]
            assert keys == expected and type(keys) is list and ints(keys), "the keys differ"


def cached(texts, size, hash_block, rng):
    """{key: (block, tokens)} of several texts; the first of a key stays."""
    found, order = {}, torch.randperm(500, generator=rng).tolist()
    for text in texts:
        key = 0
        for i in range(len(text) // size):
            key = hash_block(key, tuple(text[i * size : (i + 1) * size]))
            found.setdefault(key, (order.pop(), text[: (i + 1) * size]))
    return found


@exercise(
    "ex5",
    points=4,
    invariant="what is found is the longest known beginning without the last token; texts decide, "
    "not keys",
    cause="a hash trusted, tokens before the block not compared, a walk beyond a miss, or the last "
    "token not left to compute",
)
def test_found_beginnings(student, rng):
    for size in (1, 2, 3):
        for hash_block in (mixed(draw(rng, 0, 99)), weak):
            for _ in range(6):
                texts = [many(rng, draw(rng, 1, 12), 0, 1) for _ in range(5)]
                found = cached(texts, size, hash_block, rng)
                for gone in list(found):  # some were handed out again
                    if draw(rng, 0, 5) == 0:
                        del found[gone]
                prompts = [*texts, *([*text, *many(rng, 3, 0, 1)] for text in texts)]
                for prompt in prompts:
                    key, right = 0, []
                    for end in range(size, len(prompt), size):
                        key = hash_block(key, tuple(prompt[end - size : end]))
                        block, tokens = found.get(key, (None, None))
                        if tokens != prompt[:end]:
                            break
                        right.append(block)
                    blocks = student.match(prompt, size, hash_block, found)
                    assert blocks == right and ints(blocks), "other blocks"


@exercise(
    "ex5",
    points=2,
    invariant="block 0, prompts of one token, and a cache that knows nothing",
    cause="block 0 taken for not found, or a prompt shorter than a block",
)
def test_small_cases_of_match(student, rng):
    hash_block = mixed(draw(rng, 0, 99))
    text = many(rng, 9, 0, 9)
    found = {}
    for i, block in enumerate((0, 3, 1)):
        key = student.chain(text, 3, hash_block)[i]
        found[key] = (block, text[: 3 * (i + 1)])
    assert student.match([*text, 1], 3, hash_block, found) == [0, 3, 1], "all three are known"
    assert student.match(text, 3, hash_block, found) == [0, 3], "the last token is computed"
    for prompt in (text[:1], text[:2], text[:3]):
        assert student.match(prompt, 3, hash_block, found) == [], "too short for a block"
    assert student.match(text[:4], 3, hash_block, found) == [0], "block 0"
    assert student.match([*text, 1], 3, hash_block, {}) == [], "nothing is known"
    found[0] = (5, text[:3])  # a key like any other
    assert student.match(text[:4], 3, lambda key, tokens: 0, found) == [5], "the key 0"


# ---- exercise 6 ------------------------------------------------------------------------------


@exercise(
    "ex6",
    points=3,
    invariant="any cuts of the keys, any order of large and small scores: m, t and a / t",
    cause="one of m, t and a not corrected; exponentials that overflow or vanish",
)
def test_absorb_in_any_cuts(student, rng):
    for size, shift in ((1.0, 0.0), (3.0, 500.0), (3.0, -9e3), (2.0, 9e3)):
        scores = torch.randn(3, 20, generator=rng) * size + shift
        values = torch.rand(3, 20, 4, generator=rng) + 1  # no cancellation
        state = torch.full((3,), -math.inf), torch.zeros(3), torch.zeros(3, 4)
        at = 0
        while at < 20:
            n = min(draw(rng, 1, 8), 20 - at)
            state = student.absorb(state, scores[:, at : at + n], values[:, at : at + n])
            at += n
            for part, shape in zip(state, ((3,), (3,), (3, 4)), strict=True):
                expect_tensor(part, "absorb", torch.float32, shape)
            seen = scores[:, :at].double()
            expect_close(state[0], scores[:, :at].amax(-1), what="m")
            t = torch.exp(seen - seen.amax(-1, keepdim=True)).sum(-1)
            # exact differences of nearby scores; each exponential and sum a few roundings
            expect_close(state[1], t, what="t", rtol=200 * FLOAT32)
            right = (seen.softmax(-1)[:, None] @ values[:, :at].double()).squeeze(1)
            expect_close(state[2] / state[1][:, None], right, what="a / t", rtol=400 * FLOAT32)


def scattered(rng, length, size, heads, d, dtype=torch.float32):
    """(q, k, v, table, keys, values): blocks in random order, NaN in every row not in use."""
    query_heads, kv_heads = heads
    used = -(-length // size)
    order = torch.randperm(used + 3, generator=rng).tolist()
    k, v = (torch.full((used + 3, size, kv_heads, d), math.nan, dtype=dtype) for _ in range(2))
    keys = torch.randn(length, kv_heads, d, generator=rng).to(dtype)
    values = (torch.randn(length, kv_heads, d, generator=rng) + 4).to(dtype)
    for p in range(length):
        k[order[p // size], p % size], v[order[p // size], p % size] = keys[p], values[p]
    q = torch.randn(query_heads, d, generator=rng).to(dtype)
    return q, k, v, [*order[:used], 10**6], keys, values


def exact(q, keys, values):
    """Attention in float64, [H, d]."""
    group = q.shape[0] // keys.shape[1]
    k, v = (x.double().repeat_interleave(group, 1).transpose(0, 1) for x in (keys, values))
    s = (k @ q.double()[:, :, None]).squeeze(-1) / math.sqrt(q.shape[1])
    return (s.softmax(-1)[:, None] @ v).squeeze(1)


@exercise(
    "ex6",
    points=4,
    invariant="every block size, length and grouping of heads against float64",
    cause="the last block read whole, blocks in the order of their numbers, key heads repeated in "
    "the wrong order, or a scale of another d",
)
def test_blocks_of_every_size(student, rng):
    for size in (1, 2, 3, 8, 16):
        for length in {1, size, size + 1, 3 * size, draw(rng, 1, 40)}:
            for heads in ((1, 1), (4, 2), (6, 2), (3, 3)):
                d = (4, 16)[draw(rng, 0, 1)]
                q, k, v, table, keys, values = scattered(rng, length, size, heads, d)
                o = student.paged_attention(q, k, v, table, length)
                expect_tensor(o, "paged_attention(...)", torch.float32, q.shape)
                expect_close(o, exact(q, keys, values), what="o", rtol=1e-4)


def attend_to_views(student, q, k, v, table, length):
    """Runs beside the student's code: on the way there a view becomes a tensor of its own."""
    k, v = k.transpose(1, 2).contiguous().transpose(1, 2), v[:, :, :, ::2]
    return student.paged_attention(q[:, ::2], k[..., ::2], v, table, length)


@exercise(
    "ex6",
    points=2,
    invariant="bfloat16 pages, pages that are a view of more, and the same table twice",
    cause="sums in bfloat16, a view of contiguous memory asked for, or a result kept from before",
)
def test_bfloat16_and_views(student, rng):
    q, k, v, table, keys, values = scattered(rng, 60, 8, (4, 2), 16, torch.bfloat16)
    right = exact(q, keys, values)
    o = student.paged_attention(q, k, v, table, 60)
    expect_close(expect_tensor(o, "o", torch.float32, q.shape), right, what="o", rtol=1e-4)
    shifted = v + 1
    o = student.paged_attention(q, k, shifted, table, 60)
    more = exact(q, keys, values + 1)
    expect_close(expect_tensor(o, "o", torch.float32, q.shape), more, what="other v", rtol=1e-4)
    o = student.paged_attention(q.float(), k.float(), v.float(), table, 59)
    fewer = exact(q, keys[:59], values[:59])
    expect_close(expect_tensor(o, "o", torch.float32, q.shape), fewer, what="59 keys", rtol=1e-4)
    o = student.drive(attend_to_views, q, k, v, table, 60)
    half = exact(q[:, ::2], keys[..., ::2], values[..., ::2])
    expect_close(expect_tensor(o, "o", torch.float32, (4, 8)), half, what="views", rtol=1e-4)
