"""Hidden tests of lab06: row-by-row brute force, longer walks, and what breaks real code.

Inputs are drawn for each submission.  Objects are driven by walks in one call, and judged by what a
reader of the memory sees: every sequence reads what it wrote, and nothing is lost.
"""

import itertools
import math

import torch

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_error,
    expect_same,
    expect_tensor,
)
from efflib.lab.again import again, drive_laid, held, refused
from efflib.lab.cases import every_pair
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
    cases += [(2**24 + 1, 1), (10**9, 1), (10**9 - 1, 1), (10**9, 10**9), (1, 10**9)]
    for size in (3, 16, 2**20, 10**6 + 3):  # float32 knows no neighbours of such numbers
        most = (10**9 - 1) // size
        cases += [(most * size + more, size) for more in (-1, 0, 1)]
    for tokens, size in cases:
        blocks = student.blocks_for(tokens, size)
        assert type(blocks) is int, f"blocks_for returned {type(blocks).__name__}"
        assert blocks * size >= tokens > (blocks - 1) * size, f"{tokens}, {size}: {blocks}"


def slots_of_a_view(student, positions, table, size):
    """Runs beside the student's code: on the way there a view becomes a tensor of its own."""
    return student.slots_of(table, positions.T, size)


def slots_twice(student, positions, more, table, size):
    """Runs beside the student's code: the same tensor, written again between two calls."""
    first = student.slots_of(table, positions, size).clone()
    positions[:] = more
    return first, student.slots_of(table, positions, size)


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
    for block in (2**33, 2**55 + 1):  # the second is no float64, and its slots are none
        huge = student.slots_of([block], torch.tensor([2]), 3)
        expect_tensor(huge, "slots_of(...)", torch.int64, (1,))
        assert huge.tolist() == [3 * block + 2], "slots of a huge block"
    for shape in ((0,), (2, 0), (0, 3), (1, 0, 2)):
        none = student.slots_of([4, 1], torch.zeros(shape, dtype=torch.int64), 3)
        expect_tensor(none, "slots_of(no positions)", torch.int64, shape)
    pair = student.drive(slots_twice, torch.tensor([0, 5]), torch.tensor([3, 1]), [4, 1], 3)
    for slots, right in zip(pair, ([12, 5], [3, 13]), strict=True):
        expect_tensor(slots, "slots_of(...)", torch.int64, (2,))
        assert slots.tolist() == right, "positions that were written again"
    tables = [torch.randperm(40, generator=rng)[:3].tolist() for _ in range(3)]
    shapes = ((6,), (6,), (2, 3), (2, 3), (1,), ())
    places = [torch.randint(12, shape, generator=rng) for shape in shapes]
    again(student, [("slots_of", table, p, 4) for table in tables for p in places])
    bad = [torch.tensor(x) for x in ([3, 12], [[0, -1]], 12)]
    refused(student, [("slots_of", tables[0], p, 4) for p in bad])
    size = 2**24 + 4  # in float32 its last row is the first of the next block
    far = student.slots_of([5, 9], torch.tensor([size - 1, size, 0, 2 * size - 1]), size)
    expect_tensor(far, "slots_of(...)", torch.int64, (4,))
    right = [6 * size - 1, 9 * size, 5 * size, 10 * size - 1]
    assert far.tolist() == right, "slots of large positions"
    long = torch.randperm(200, generator=rng).tolist()
    far = student.slots_of(long, torch.tensor([70_000, 99_999]), 500)
    expect_tensor(far, "slots_of(...)", torch.int64, (2,))
    assert far.tolist() == [long[140] * 500, long[199] * 500 + 499], "slots of large positions"
    turned = student.drive(slots_of_a_view, torch.arange(6).reshape(2, 3), [4, 0], 3)
    expect_tensor(turned, "slots_of(...)", torch.int64, (3, 2))
    assert turned.tolist() == [[12, 0], [13, 1], [14, 2]], "positions that are a view"


@exercise(
    "ex1",
    points=2,
    invariant="ValueError on both sides of a table, wherever the bad position stands",
    cause="only the first or the last position checked, only the largest, or one dimension only",
)
def test_bad_positions_anywhere(student, rng):
    for size, blocks in ((4, 2), (3, 1), (1, 5)):
        table = torch.randperm(9, generator=rng)[:blocks].tolist()
        top = size * blocks
        ends = student.slots_of(table, torch.tensor([top - 1, 0]), size)
        expect_tensor(ends, "slots_of(...)", torch.int64, (2,))
        assert ends.tolist() == [table[-1] * size + size - 1, table[0] * size], "the ends"
        for bad in (-1, -top, top, top + 1, 10**6, 2**40):
            for shape in ((3,), (), (1,), (2, 2), (2, 1, 3)):
                good = torch.randint(top, shape, generator=rng)
                for at in range(good.numel()):
                    positions = good.clone()
                    positions.view(-1)[at] = bad
                    expect_error(
                        ValueError,
                        lambda p=positions, t=table, s=size: student.slots_of(t, p, s),
                        f"position {bad}",
                    )
    for none in (torch.tensor([0]), torch.tensor(0), torch.tensor([[-1]])):
        expect_error(ValueError, lambda p=none: student.slots_of([], p, 4), "no blocks")


def drive_refused_views(student, calls):
    """Runs beside the student's code: of each call (table, positions, size), with positions as
    they are and as a view, what it raised, and whether an argument is another one afterwards."""
    said = []
    for table, positions, size in calls:
        view = positions[..., None].repeat_interleave(2, -1)[..., 0]
        for given in (positions.clone(), view):
            kind, blocks = "nothing", list(table)
            try:
                student.slots_of(blocks, given, size)
            except Exception as error:
                kind = type(error).__name__
                kind = "ValueError" if isinstance(error, ValueError) else kind
            said.append([kind, blocks == table and given.equal(positions)])
    return said


def some_positions(rng, shape, top, kind):
    """Positions of this shape from 0 to top - 1."""
    drawn = (torch.rand(shape, generator=rng, dtype=torch.float64) * top).long()
    if kind == "last":
        return torch.full(shape, top - 1)
    if kind == "few":  # most of the table is not needed
        return drawn.clamp(max=min(top - 1, 1))
    return 0 * drawn if kind == "zeros" else drawn.clamp(max=top - 1)


@exercise(
    "ex1",
    points=1,
    invariant="both functions, anywhere in what the card admits: every two of block sizes, tables, "
    "shapes, layouts and magnitudes, and what is refused with each",
    cause="a corner where two others meet, such as a view of one position in a long table; or "
    "memory used again",
)
def test_anywhere_in_slots(student, rng):
    sizes, lengths = (1, 2, 3, 16, 500, 4099), (0, 1, 2, 7, 300)
    shapes = ((), (1,), (7,), (0,), (2, 3), (2, 0), (1, 1), (3, 1, 2))
    numbers, bad = ("small", "large", "with 0"), (-1, "top", "-top", "top + 1", 10**13, -(10**13))
    calls, rights, refusals = [], [], []
    kinds = ("drawn", "last", "few", "zeros")
    cases = every_pair(rng, sizes, lengths, shapes, kinds, numbers, bad, range(4))
    cases += [(2**24 + 4, 1, s, "last", "large", "top", 0) for s in ((), (3, 1, 2))]
    for size, length, shape, kind, of_table, wrong, where in cases:
        low, high = (8 * 10**9, 9 * 10**9) if of_table == "large" else (0, 4 * length + 1)
        table = [low + (high - low) * i // max(length, 1) for i in range(length)]
        table = [table[i] for i in torch.randperm(length, generator=rng).tolist()]
        if of_table == "with 0" and table:
            table[draw(rng, 0, length - 1)] = 0
        top = size * length
        if length or 0 in shape:
            positions = some_positions(rng, shape, max(top, 1), kind)
            right = [table[p // size] * size + p % size for p in positions.flatten().tolist()]
            calls.append(("slots_of", table, positions, size))
            rights.append(torch.tensor(right, dtype=torch.int64).reshape(shape))
        positions = some_positions(rng, shape, max(top, 1), kind)
        if positions.numel():  # with no blocks all are bad
            wrong = {"top": top, "-top": -top - 1, "top + 1": top + 1}.get(wrong, wrong)
            positions.view(-1)[where % positions.numel()] = wrong
            refusals.append((table, positions, size))
    for right, results in zip(rights, held(student, rng, calls), strict=True):
        for result in results:
            expect_same(result, right, f"slots of {list(right.shape)} positions")
    found = student.drive(drive_refused_views, refusals)
    for (table, positions, size), (kind, same) in zip(
        [call for call in refusals for _ in "12"], found, strict=True
    ):
        what = f"{positions.tolist()} in {len(table)} blocks of {size}"
        assert kind == "ValueError", f"{what}: {kind} in place of ValueError"
        assert same, f"{what}: an argument was changed"
    cases = every_pair(rng, (0, 1, 15, 10**9), (1, 3, 16, 2**20, 10**9, 10**9 + 7), (-1, 0, 1))
    cases = [(max(0, min(10**9, n // size * size + by)), size) for n, size, by in cases]
    for case, blocks in zip(
        cases, student.many("blocks_for", [(c, {}) for c in cases]), strict=True
    ):
        right = (case[0] + case[1] - 1) // case[1]
        assert type(blocks) is int and blocks == right, f"blocks_for{case}: {blocks}, not {right}"


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


def drive_large_pool(student, walk, size):
    """Runs beside the student's code: what each operation returned, or that it raised."""
    pool, seen = student.BlockPool(size), []
    for name, *args in walk:
        try:
            seen.append(getattr(pool, name)(*args))
        except ValueError:
            seen.append("ValueError")
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
    points=3,
    invariant="after any operations: free + owned = all, owners are counted, and take gives the "
    "block that has been free longest",
    cause="a block free while it has owners, counted twice in the queue, or handed out in another "
    "order",
)
def test_long_walks_of_the_pool(student, rng):
    for size in (1, 2, 5, 12):
        check_pool(student, [random_pool_walk(rng, size, 60) for _ in range(15)], size)
    many_blocks = 1300  # numbers that no byte holds
    last = many_blocks - 1
    back = [last, *torch.randperm(last, generator=rng).tolist()]
    walk = [*[("take",)] * many_blocks, *(("release", b) for b in back), *[("take",)] * 40]
    walk += [("free",)]
    walk += [("share", last), ("count", last), *[("release", last)] * 3, ("share", last), ("free",)]
    walk += [("count", b) for b in (last, back[39], back[40])]
    taken = student.drive(drive_large_pool, walk, many_blocks)
    right = [*range(many_blocks), *[None] * many_blocks, *back[:40], many_blocks - 40]
    right += [None, 2, None, None, *["ValueError"] * 2, many_blocks - 39, 0, 1, 0]
    assert taken == right and all(type(b) is type(r) for b, r in zip(taken, right, strict=True)), (
        "a pool of many blocks: other blocks are taken"
    )


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
    cause="a flag in place of a count, or counts that stop at two, or at what a byte holds",
)
def test_many_owners(student, rng):
    for owners in (2, 3, 9, 11, 130, 300):
        walk = [("take",), *[("share", 0)] * (owners - 1), ("take",)]
        walk += [("release", 0)] * (owners - 1) + [("take",), ("release", 0), ("take",)]
        check_pool(student, [walk, walk[:-1]], 3)


def drive_pools(student, walks):
    """Runs beside the student's code: pools that take one operation each in turn; of each walk
    what it gave."""
    import itertools

    pools, out = [student.BlockPool(size) for size, _ in walks], [[] for _ in walks]
    for operations in itertools.zip_longest(*(walk for _, walk in walks)):
        for pool, operation, seen in zip(pools, operations, out, strict=True):
            if operation is None:
                continue
            name, *args = operation
            try:
                seen.append(getattr(pool, name)(*args))
            except Exception as error:
                kinds = [k.__name__ for k in (MemoryError, ValueError) if isinstance(error, k)]
                seen.append((kinds or [type(error).__name__])[0])
    return out


def model_of_pool(size, walk):
    """What each operation gives."""
    queue, counts, seen = list(range(size)), [0] * size, []
    for name, *args in walk:
        value = None
        if name == "take":
            value = queue.pop(0) if queue else "MemoryError"
            if type(value) is int:
                counts[value] = 1
        elif name in ("free", "count"):
            value = len(queue) if name == "free" else counts[args[0]]
        elif not counts[args[0]]:
            value = "ValueError"
        else:
            counts[args[0]] += 1 if name == "share" else -1
            queue += [args[0]] if not counts[args[0]] else []
        seen.append(value)
    return seen


@exercise(
    "ex2",
    points=1,
    invariant="pools of any size, side by side: taken to the last, shared, released in any order, "
    "taken again, with errors between, and asked now and then",
    cause="a size above which something else holds, an order that a second round shows, or errors "
    "that leave a trace where another thing was done before",
)
def test_anywhere_in_pools(student, rng):
    walks = []
    for size, share, owners, kind, asks in every_pair(
        rng, (1, 2, 3, 64, 65, 200), (0.0, 0.3, 1.0), (1, 5),
        ("rising", "falling", "drawn"), (False, True),
    ):  # fmt: skip
        walk = []
        for turn in range(3):
            walk += [("take",)] * (size + turn)  # too many from the second time on
            order = {"rising": range(size), "falling": range(size)[::-1]}.get(kind)
            order = order or torch.randperm(size, generator=rng).tolist()
            some = [b for b in order if torch.rand((), generator=rng) < share]
            walk += [("share", b) for b in some for _ in range(owners)]
            walk += [("release", b) for b in some for _ in range(owners + turn % 2)]
            if asks:
                walk += [("free",), ("count", draw(rng, 0, size - 1)), ("count", 0)]
            walk += [("release", b) for b in order]  # those of the second turn are free already
            walk += [("share", order[0]), ("release", order[-1]), ("free",), ("count", order[0])]
            walk += [("take",), ("take",), ("share", order[0])]
            walk += [("release", b) for b in range(size)] * (1 + owners % 2)
        walks.append((size, walk))
    for (size, walk), seen in zip(walks, student.drive(drive_pools, walks), strict=True):
        right = model_of_pool(size, walk)
        for i, (found, value) in enumerate(zip(seen, right, strict=True)):
            same = found == value and type(found) is type(value)
            assert same, f"{size} blocks, operation {i}, {walk[i]}: {found}, expected {value}"


# ---- exercise 3 ------------------------------------------------------------------------------


def random_pieces(rng, size):
    """(pieces, kind of every row) of a memory in random pieces, in random order."""
    rows, pieces, at = [], [], 0
    while at < size:
        length = min(draw(rng, 1, 6), size - at)
        if draw(rng, 0, 2):
            total = draw(rng, 1, length)
            tokens = draw(rng, 0, total)
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
    points=3,
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
    for pieces in ([(2, 5, 0, 2)], [(2, 5, 0, 2), (7, 8, 1, 1)]):  # admitted, and no token yet
        seen = student.contiguous_usage(pieces, 9, 4)
        used = len(pieces) - 1
        assert seen == (used, 2, 1, (0, 5)[used], (6, 0)[used]), "a piece without a token"
    k = 10_000  # as large as a server's
    seen = student.contiguous_usage([(7 * k, 9 * k, k, k + 5), (0, 5 * k, k, 2 * k)], 10 * k, 2 * k)
    assert seen == (2 * k, k + 5, 4 * k - 5, 0, 3 * k), "large pieces"
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
                tokens = draw(rng, 0, total)
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
    seen = student.paged_usage([(0, 1), (0, 40), (1, 1)], 16, 1254)
    assert seen == (1, 0, 15, 0, 1253 * 16), "requests without a token"
    seen = student.paged_usage([(2048, 2048), (2047, 2049)] * 300, 2048, 1000)
    assert seen == (300 * 4095, 300, 0, 0, 400 * 2048), "many requests"


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
    for policy in ("", "Maximum", "power", "power22", " oracle", None):
        expect_error(ValueError, lambda p=policy: student.piece(p, 1, 1, 9), "an unknown policy")


def some_memory(rng, count, scale, gaps, held_now, order):
    """(pieces, their used, reserved and internal rows, lengths of the gaps)."""
    pieces, free, at, rows = [], [], 0, [0, 0, 0]
    for i in range(count + 1):
        there = {"none": False, "front": i == 0, "back": i == count, "all": True}
        there["some"] = bool(draw(rng, 0, 1))
        free.append(draw(rng, 1, 5) * scale if there[gaps] else 0)
        at += free[-1]
        if i == count:
            break
        total = draw(rng, 1, 6 * scale)
        length = total + draw(rng, 0, 2) * draw(rng, 0, scale)
        tokens = {"none": 0, "one": 1, "all": total}.get(held_now, draw(rng, 0, total))
        pieces.append((at, at + length, tokens, total))
        rows = [a + b for a, b in zip(rows, (tokens, total - tokens, length - total), strict=True)]
        at += length
    if order == "falling":
        pieces.reverse()
    elif order == "drawn":
        pieces = [pieces[i] for i in torch.randperm(count, generator=rng).tolist()]
    return pieces, rows, free, at


@exercise(
    "ex3",
    points=1,
    invariant="all three functions, anywhere in what the card admits: every two of sizes, gaps, "
    "tokens, orders and what is wanted, policies and lengths",
    cause="a corner where two others meet, such as no pieces and a large memory",
)
def test_anywhere_in_the_memory(student, rng):
    calls, rights = [], []
    cases = every_pair(
        rng, (0, 1, 2, 9, 300), (1, 3, 10**5), ("none", "front", "back", "all", "some"),
        ("none", "one", "all", "drawn"), ("rising", "falling", "drawn"),
        (0, 1, "longest", "longest + 1", "all", "all + 1", "more than there is"),
    )  # fmt: skip
    for order, wanted in itertools.product(("falling", "drawn"), ("longest", "longest + 1")):
        cases.append((300, 10**5, "all", "drawn", order, wanted))  # many, as they lie
    for *some, wanted in cases:
        pieces, rows, free, size = some_memory(rng, *some)
        if not size:  # a memory has a row
            free, size = [1], 1
        named = {"longest": max(free), "longest + 1": max(free) + 1, "all": sum(free)}
        named |= {"all + 1": sum(free) + 1, "more than there is": 3 * size}
        wanted = named.get(wanted, wanted)
        external = sum(free) if max(free) < wanted <= sum(free) else 0
        calls.append(((pieces, size, wanted), {}))
        rights.append((*rows, external, sum(free) - external))
    expect_five(student.many("contiguous_usage", calls), rights, "contiguous_usage")
    calls, rights = [], []
    blocks_of, nows = (1, 3, 16, 2048), (0, 1, "full", "one more", "one less", "drawn")
    laters = ("done", "one more", "block", "beyond", "drawn")
    cases = every_pair(rng, (0, 1, 3, 600), blocks_of, nows, laters, (0, 1, 2000))
    cases += itertools.product((1,), blocks_of, nows, laters, (draw(rng, 0, 3),))
    for count, size, now, later, spare in cases:
        requests, rows, blocks = [], [0, 0, 0], 0
        for _ in range(count):
            tokens = {"full": 2 * size, "one more": size + 1, "one less": 2 * size - 1}.get(
                now, now
            )
            tokens = draw(rng, 0, 3 * size) if tokens == "drawn" else tokens
            own = (tokens + size - 1) // size
            total = {"done": tokens, "one more": tokens + 1, "block": own * size}
            total = total | {"beyond": own * size + draw(rng, 1, 9)}
            total = max(1, tokens, total.get(later, tokens + draw(rng, 0, 2 * size)))
            blocks += own
            inside = min(total, own * size)
            more = tokens, inside - tokens, own * size - inside
            rows = [a + b for a, b in zip(rows, more, strict=True)]
            requests.append((tokens, total))
        if blocks + spare:
            calls.append(((requests, size, blocks + spare), {}))
            rights.append((*rows, 0, spare * size))
    expect_five(student.many("paged_usage", calls), rights, "paged_usage")
    policies = ("maximum", "power2", "oracle")
    outputs = (1, 2, 3, 4, 5, 255, 256, 257, 2**29 - 1, 2**29, 2**29 + 1, 2**31 + 1)
    cases = every_pair(rng, policies, (1, 2, 100, 10**6), outputs, (1, 20, 2048, 10**7))
    for case, found in zip(cases, student.many("piece", [(c, {}) for c in cases]), strict=True):
        policy, prompt, output, longest = case
        power = 1
        while power < output:
            power *= 2
        right = dict(zip(policies, (longest, prompt + power, prompt + output), strict=True))[policy]
        assert type(found) is int and found == right, f"piece{tuple(case)}: {found}, not {right}"
    others = ("", "Maximum", "power", "power2 ", "oracles", "Oracle", None)
    bad = every_pair(rng, others, (1, 100), (1, 3, 2**29, 2**29 + 1), (9, 2048))
    refused(student, [("piece", *case) for case in bad])


def expect_five(found, rights, name):
    for seen, right in zip(found, rights, strict=True):
        good = type(seen) is tuple and seen == right and ints(seen)
        assert good, f"{name}: the five kinds are {seen}, not {right}"


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
        if set(tables) != set(self.texts):
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


def moved(line, op, before, tables):
    """The line of free blocks after an operation; None if those taken were not its first.

    A copy and the blocks behind it may be taken in either order; what is released comes back from
    the end of the table.
    """
    old, now = ({b for t, _ in known.values() for b in t} for known in (before, tables))
    taken = now - old
    if taken != set(line[: len(taken)]):
        return None
    back = before[op[1]][0][::-1] if op[0] == "free" and op[1] in before else []
    return line[len(taken) :] + [b for b in back if b not in now]


def judge_tables(blocks, size):
    def judge(walk, seen):
        reader, before, line = Reader(blocks, size), {}, list(range(blocks))
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
            line = moved(line, op, before, tables)
            if line is None:
                return i, "other blocks were taken than those that have been free longest"
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
    points=2,
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
    points=2,
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
    points=1,
    invariant="what raises leaves also the line of free blocks as it was: the next append gets the "
    "blocks that it would have got",
    cause="blocks taken and given back when the error comes, or names looked at too late",
)
def test_errors_leave_the_line(student, rng):
    for size in (1, 4):
        base = [("append", "A", 2 * size), ("append", "B", 2 * size), ("free", "A")]
        base += [("append", "C", size), ("fork", "B", "D")]  # of 7 blocks 4 are free
        for fails in (
            [("append", "C", 5 * size)],
            [("append", "E", 9 * size)],
            [("append", "D", 4 * size + 1)],
            [("fork", "B", "C")],
            [("fork", "E", "A")],
            [("fork", "B", "B")],
            [("free", "A")],
        ):
            more = [("append", "ACE"[draw(rng, 0, 2)], size) for _ in range(4)]
            check_tables(student, [[*base, *fails, *more], [*base, *fails * 2, *more]], 7, size)
    # a copy that finds no block, while others are free for those who need none
    walk = [("append", "A", 6), ("fork", "A", "B"), ("append", "B", 9), ("append", "A", 1)]
    check_tables(student, [[*walk, ("append", "C", 4)], [("append", "B", 13), *walk]], 4, 4)


@exercise(
    "ex4",
    points=1,
    invariant="any string or int is a name, and a memory may be as large as a server's",
    cause="the empty name or the number 0 taken for none, or a table that is cut short",
)
def test_names_and_sizes(student, rng):
    for names in (("", "0", "A", "AA"), (0, 1, -1, 2**40), ("0", 0, "a", "A")):
        walks = [random_tables_walk(rng, 40, 5, names) for _ in range(6)]
        first = [("append", names[0], 6), ("fork", names[0], names[1]), ("append", names[0], 1)]
        walks.append([*first, ("fork", names[1], names[2]), ("free", names[0]), *first[:2]])
        walks.append([("append", names[1], 1), ("fork", names[1], names[0]), ("free", names[1])])
        check_tables(student, walks, 12, 4, names)
    walk = [("append", "A", 2000), ("fork", "A", "B"), ("append", "B", 2001), ("append", "A", 8)]
    walk += [("append", "C", 20_000), ("free", "A"), ("append", "C", 16_500), ("free", "B")]
    check_tables(student, [walk], 1300, 16, "ABC")


@exercise(
    "ex4",
    points=1,
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


@exercise(
    "ex4",
    points=1,
    invariant="sequences anywhere in what the card admits: every two of a pool's size, a block's "
    "size, how much comes at once and kinds of names",
    cause="a size above which something else holds, or names that look alike, where blocks are "
    "shared or run out",
)
def test_anywhere_in_sequences(student, rng):
    sizes = ((1, 1), (1, 3), (1, 16), (2, 1), (2, 2), (2, 16), (3, 3), (4, 64), (66, 1), (40, 2))
    some_names = ("ABCD", ("", "0", 0, "A"), (1, "1", -1, 2**40), ("", 0, " ", "None"))
    plans = {}
    for size, names, most in every_pair(
        rng, sizes, some_names, ("1", "block - 1", "block", "block + 1", "all", "half")
    ):
        plans.setdefault((size, names), []).append(most)
    for ((blocks, size), names), amounts in plans.items():
        named = {"1": 1, "block - 1": size - 1, "block": size, "block + 1": size + 1}
        named |= {"all": blocks * size, "half": max(1, blocks * size // 2)}
        walks = []
        for most in amounts:
            order = torch.randperm(4, generator=rng).tolist()
            first, second, third, fourth = (names[i] for i in order)
            count = named[most]
            walk = [("append", first, count), ("fork", first, second), ("append", second, 1)]
            walk += [("append", first, 1), ("fork", second, third), ("append", third, count)]
            walk += random_tables_walk(rng, 12, max(1, count), names)
            walk += [("free", name) for name in (second, first, third, fourth)]
            # and in which order blocks came back
            walks.append([*walk, *[("append", third, size)] * 3, ("free", third)])
        check_tables(student, walks, blocks, size, names)
    for name in ("", 0, "0", -1, 2**40):  # as many tokens as a server holds
        walk = [("append", name, 20_000), ("free", name), *[("append", "A", 16)] * 3]
        check_tables(student, [walk], 1250, 16, (name, "A"))


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
    points=2,
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
    points=3,
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
    points=1,
    invariant="a text that differs in one token, in whichever block, is another text",
    cause="the first and the last block compared only, tokens put into one string, or cut to bytes",
)
def test_other_texts_under_the_same_key(student, rng):
    for size in (1, 2, 4):
        text = many(rng, 5 * size, 0, 130_000)
        real = mixed(draw(rng, 0, 99))
        keys, key = [], 0
        for i in range(5):
            key = real(key, tuple(text[i * size : (i + 1) * size]))
            keys.append(key)
        for i in range(5):
            for at in range((i + 1) * size):
                found = {k: (7 - j, text[: (j + 1) * size]) for j, k in enumerate(keys)}
                other = list(found[keys[i]][1])
                other[at] += (1, 256, 2**16)[draw(rng, 0, 2)]
                found[keys[i]] = (7 - i, other)
                blocks = student.match([*text, 1], size, real, found)
                assert blocks == [7 - j for j in range(i)], "a block of another text was used"
    pairs = [([1, 11], [11, 1]), ([1, 2], [257, 2]), ([5, 7], [5, 7 + 2**16]), ([0, 1], [1, 0])]
    pairs += [([12, 3], [1, 23]), ([3, 3], [3, 130_000]), ([0, 0], [0]), ([1, 0], [1, 0, 0])]
    for one, other in pairs:
        for known, right in ((one, [4]), (other, [])):
            blocks = student.match([*one, 9], 2, lambda key, tokens: 6, {6: (4, known)})
            assert blocks == right, "two texts taken for one, or one for two"


def rolling(key, tokens):
    """64 bits, as a server's."""
    for token in tokens:
        key = (key * 1_000_003 + token + 1) % 2**64
    return key


def drive_long_texts(student, text, known, keys):
    """Runs beside the student's code: chains of a long text, and the blocks of its beginning."""

    def hash_block(key, tokens):
        for token in tokens:
            key = (key * 1_000_003 + token + 1) % 2**64
        return key

    chains = [student.chain(text, size, hash_block) for size in (1, 16)]
    found = {key: (i, text[: i + 1]) for i, key in enumerate(keys[:known])}
    return *chains, student.match(text, 1, hash_block, found)


@exercise(
    "ex5",
    points=1,
    invariant="texts of thousands of blocks, token ids as large as a vocabulary",
    cause="a recursion, which Python ends at a thousand, or keys in 32 or 63 bits",
)
def test_long_texts(student, rng):
    text, known, right = many(rng, 16_000, 0, 150_000), 1100, []
    for size in (1, 16):
        keys, key = [], 0
        for end in range(size, len(text) + 1, size):
            key = rolling(key, tuple(text[end - size : end]))
            keys.append(key)
        right.append(keys)
    *chains, found = student.drive(drive_long_texts, text, known, right[0])
    assert chains == right, "other keys"
    assert found == list(range(known)) and ints(found), "other blocks"


@exercise(
    "ex5",
    points=1,
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


def some_text(rng, length, kind):
    if kind == "zeros":
        return [0] * length
    top = {"two": 1, "large": 150_000, "small": 300}[kind]
    return many(rng, length, 0, top)


def keys_of(text, size, hash_block):
    keys, key = [], 0
    for end in range(size, len(text) + 1, size):
        key = hash_block(key, tuple(text[end - size : end]))
        keys.append(key)
    return keys


def changed_at(rng, text, size, block, kind):
    """The text up to the end of a block, in which one thing is another."""
    text = text[: (block + 1) * size]
    at = {"first": 0, "last": len(text) - 1}.get(kind, draw(rng, 0, len(text) - 1))
    if kind == "shorter":
        return text[:-1]
    if kind == "longer":
        return [*text, 0]
    if kind == "as much in all" and len(text) > 1 and text[-1]:
        return [text[0] + 1, *text[1:-1], text[-1] - 1]
    if kind == "only its own":
        return text[-size:] if block else [*text, *text]
    text[at] += (1, 2**8, 2**16)[draw(rng, 0, 2)]
    return text


@exercise(
    "ex5",
    points=1,
    invariant="both functions, anywhere in what the card admits: every two of block sizes, "
    "lengths, ids and hashes, and of what is known, gone or another text, in any block",
    cause="a corner where two others meet, such as block 0 and a key 0; or texts that are compared "
    "in part",
)
def test_anywhere_in_prefixes(student, rng):
    hashes = {"mixed": mixed(draw(rng, 0, 99)), "zero": lambda key, tokens: 0, "weak": weak}
    hashes["64 bits"] = rolling
    for size, blocks, more, ids, of_hash in every_pair(
        rng, (1, 2, 3, 16, 100), (0, 1, 2, 9), ("none", "one", "block - 1"),
        ("zeros", "two", "large", "small"), tuple(hashes),
    ):  # fmt: skip
        length = blocks * size + {"none": 0, "one": 1}.get(more, size - 1)
        text, calls = some_text(rng, length, ids), []

        def hash_block(key, tokens, calls=calls, real=hashes[of_hash]):
            calls.append((key, tokens))
            return real(key, tokens)

        keys, right = student.chain(text, size, hash_block), keys_of(text, size, hashes[of_hash])
        what = f"{length} tokens in blocks of {size}, {of_hash}"
        assert type(keys) is list and keys == right and ints(keys), f"{what}: other keys"
        parts = [tuple(text[i : i + size]) for i in range(0, len(right) * size, size)]
        right = list(zip([0, *right], parts, strict=False))
        assert calls == right, f"{what}: hash_block was called otherwise"
    others = ("first", "last", "somewhere", "shorter", "longer", "only its own", "as much in all")
    cases = every_pair(
        rng, (1, 2, 3, 16, 100), (0, 1, 2, 5), (1, "block - 1", "block"),
        ("zeros", "two", "large"), ("mixed", "zero", "64 bits"),
        ("all known", "nothing known", "gone", "another text"), (0, 1, "last"), others,
        ("rising", "falling", "drawn"),
    )  # fmt: skip
    for at, other in itertools.product(range(5), others):  # in any block, whatever differs
        size = (2, 3, 16)[draw(rng, 0, 2)]
        cases.append((size, 5, 1, "large", "64 bits", "another text", at, other, "drawn"))
    for size, blocks, more, ids, of_hash, fault, which, other, swap in cases:
        length = max(1, blocks * size + {1: 1, "block": size}.get(more, size - 1))
        prompt, real, found = some_text(rng, length, ids), hashes[of_hash], {}
        keys = keys_of(prompt, size, real)
        numbers = torch.randperm(len(keys), generator=rng).tolist()  # block 0 is one of them
        numbers = sorted(numbers, reverse=swap == "falling") if swap != "drawn" else numbers
        at = len(keys) - 1 if which == "last" else which
        for i, key in enumerate(keys):
            known = prompt[: (i + 1) * size]
            if fault == "another text" and i == at:
                known = changed_at(rng, prompt, size, i, other)
            if fault != "nothing known" and not (fault == "gone" and i == at):
                found.setdefault(key, (numbers[i], known))
        right = []
        for end, key in zip(range(size, length, size), keys, strict=False):
            block, known = found.get(key, (None, None))
            if known != prompt[:end]:
                break
            right.append(block)
        blocks = student.match(prompt, size, real, found)
        what = f"{length} tokens in blocks of {size}, {of_hash}, {fault} at {at}, {other}"
        assert type(blocks) is list and blocks == right, f"{what}: {blocks}, not {right}"
        assert ints(blocks), f"{what}: numbers of blocks are no ints"


# ---- exercise 6 ------------------------------------------------------------------------------


@exercise(
    "ex6",
    points=2,
    invariant="any cuts of the keys, any order of large and small scores: m, t and a / t",
    cause="one of m, t and a not corrected; exponentials that overflow or vanish",
)
def test_absorb_in_any_cuts(student, rng):
    cases = ((1.0, 0.0, 0.0), (3.0, 500.0, 0.0), (3.0, -9e3, 0.0), (2.0, 9e3, 0.0))
    for size, shift, apart in (*cases, (1.0, -9e3, 300.0), (2e3, 0.0, 0.0), (0.0, -1e4, 0.0)):
        scores = torch.randn(3, 20, generator=rng) * size + shift
        scores += apart * torch.arange(3)[:, None]
        values = torch.rand(3, 20, 4, generator=rng) + 1  # no cancellation
        state = torch.full((3,), -math.inf), torch.zeros(3), torch.zeros(3, 4)
        at = 0
        while at < 20:
            n = min(draw(rng, 1, 8), 20 - at) if at else 1
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
    for apart, huge in ((18.0, 1e10), (200.0, 1e30)):  # a small weight of a huge value
        for first in (0.0, apart):
            scores = torch.tensor([[first, apart - first], [apart - first, first]])
            values = torch.where(scores > 0, 1e-4, huge)[:, :, None]
            right = (scores.double().softmax(-1)[:, None] @ values.double()).squeeze(1)
            for cuts in ((2,), (1, 1)):
                state, at = (torch.full((2,), -math.inf), torch.zeros(2), torch.zeros(2, 1)), 0
                for n in cuts:
                    part = slice(at, at + n)
                    state, at = student.absorb(state, scores[:, part], values[:, part]), at + n
                for part, shape in zip(state, ((2,), (2,), (2, 1)), strict=True):
                    expect_tensor(part, "absorb", torch.float32, shape)
                expect_close(state[2] / state[1][:, None], right, what="a / t", rtol=64 * FLOAT32)
    for low in (-1e4, -1e-8, 0.0, 1e4):  # one head, one key, one number
        for value in (1e-8, -3.0, 1e4):
            first = torch.full((1,), -math.inf), torch.zeros(1), torch.zeros(1, 1)
            state = student.absorb(first, torch.full((1, 1), low), torch.full((1, 1, 1), value))
            right = (torch.full((1,), low), torch.ones(1), torch.full((1, 1), value))
            for part, wanted, name in zip(state, right, "mta", strict=True):
                expect_same(part, wanted, f"{name} after one key")


def scattered(rng, length, size, heads, d, dtype=torch.float32):
    """(q, k, v, table, keys, values): blocks in random order, NaN in every row not in use."""
    query_heads, kv_heads = heads
    used = -(-length // size)
    order = torch.randperm(used + 3, generator=rng).tolist()
    k, v = (torch.full((used + 3, size, kv_heads, d), math.nan, dtype=dtype) for _ in range(2))
    keys = torch.randn(length, kv_heads, d, generator=rng).to(dtype)
    values = (torch.rand(length, kv_heads, d, generator=rng) + 1).to(dtype)  # no cancellation
    for p in range(length):
        k[order[p // size], p % size], v[order[p // size], p % size] = keys[p], values[p]
    q = torch.randn(query_heads, d, generator=rng).to(dtype)
    beyond = (10**6, -1)[draw(rng, 0, 1)]  # no block, or one that Python takes for the last
    return q, k, v, [*order[:used], beyond], keys, values


def exact(q, keys, values):
    """Attention in float64, [H, d]."""
    group = q.shape[0] // keys.shape[1]
    k, v = (x.double().repeat_interleave(group, 1).transpose(0, 1) for x in (keys, values))
    s = (k @ q.double()[:, :, None]).squeeze(-1) / math.sqrt(q.shape[1])
    return (s.softmax(-1)[:, None] @ v).squeeze(1)


@exercise(
    "ex6",
    points=2,
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
                check_attention(student, q, k, v, table, keys, values)
    q, k, v, table, keys, values = scattered(rng, 300, 16, (32, 8), 128)  # as large as a model's
    check_attention(student, q, k, v, table, keys, values)
    for size in (1e-8, 1e4):
        q, k, v, table, keys, values = scattered(rng, 11, 4, (4, 2), 8)
        check_attention(student, q, k, v * size, table, keys, values * size)
        check_attention(student, q / size, k * size, v, table, keys * size, values)
        check_attention(student, q * 1e-8, k, v, table, keys, values)
    q, k, v, table, keys, values = scattered(rng, 10, 4, (4, 2), 8)  # rows may hold anything
    for other in (math.inf, -math.inf):
        others = (x.nan_to_num(nan=other) for x in (k, v))
        check_attention(student, q, *others, table, keys, values)
    for q, k, v, table, keys, values in (
        scattered(rng, 1100, 1, (2, 1), 4),
        scattered(rng, 1, 1, (1, 1), 1),
        scattered(rng, 5, 2, (1, 1), 1),
        scattered(rng, 9, 100, (2, 1), 4),
    ):
        check_attention(student, q, k, v, table, keys, values)


def rounding_of(q, keys):
    """By how much o may be off, relatively: scores are sums of d products, rounded in any order.

    |error of a score| <= (d + 2) 2^-24 sum |q k| / sqrt(d), twice that in exponentials and their
    sum, and the roundings of both sums besides.
    """
    group = q.shape[0] // keys.shape[1]
    k = keys.double().abs().repeat_interleave(group, 1)
    largest = float((k * q.double().abs()).sum(-1).max()) / math.sqrt(q.shape[1])
    return FLOAT32 * (2 * (q.shape[1] + 2) * largest + 4 * keys.shape[0] + 64)


def check_attention(student, q, k, v, table, keys, values):
    o = student.paged_attention(q, k, v, table, len(keys))
    expect_tensor(o, "paged_attention(...)", torch.float32, q.shape)
    bound = rounding_of(q, keys)
    expect_close(o, exact(q, keys, values), what="o", rtol=min(bound, 0.1))


def with_scores(scores, size, group, rng):
    """(q, k, v, table, keys, values) with just these scores [H, length], without a rounding.

    d is 16, so that sqrt(d) is 4.  A head's query is 4 at a place of its own in its group, and the
    key there is its score: whole quarters, whose products and sums float32 holds.
    """
    heads, length = scores.shape
    q, k, v, table, keys, values = scattered(rng, length, size, (heads, heads // group), 16)
    q, keys = torch.zeros_like(q), torch.zeros_like(keys)
    for h in range(heads):
        q[h, h % group] = 4.0
        keys[:, h // group, h % group] = scores[h]
    for p in range(length):
        k[table[p // size], p % size] = keys[p]
    return q, k, v, table, keys, values


@exercise(
    "ex6",
    points=2,
    invariant="scores from -10 000 to 10 000, rising or falling from block to block, and far apart "
    "in the heads",
    cause="m that begins at 0 or at -100, m of the first block or of all heads, a mask of -10 000, "
    "a small number added to t, or a sum that is not corrected",
)
def test_large_scores(student, rng):
    length, size = 11, 4
    block = torch.arange(length) // size
    for shift in (-9996.0, -9000.0, -300.0, -100.0, 0.0, 9000.0, 9990.0):
        for step in (0.0, 1.0, 2.0, -2.0, 200.0, -200.0):
            for apart in (0.0, 200.0):
                small = torch.randint(-8, 9, (4, length), generator=rng) / 4
                scores = small + shift + step * block + apart * torch.arange(4)[:, None]
                scores = scores.clamp(-1e4, 1e4)
                parts = with_scores(scores, size, 2, rng)
                check_exactly(student, *parts)
    for length in (1, 2, 3):  # few keys: nothing to hide behind
        for low in (-1e4, -100.0, 0.0, 1e4):
            scores = torch.randint(0, 5, (2, length), generator=rng) / 4 * (-1 if low > 0 else 1)
            check_exactly(student, *with_scores(scores + low, 2, 1, rng))
            check_exactly(student, *with_scores(torch.full((2, length), low), 1, 2, rng))  # ties


def check_exactly(student, q, k, v, table, keys, values):
    """Scores are exact: what is left are roundings of exponentials and of sums of a few terms."""
    o = student.paged_attention(q, k, v, table, len(keys))
    expect_tensor(o, "paged_attention(...)", torch.float32, q.shape)
    rtol = FLOAT32 * (8 + 12 * (len(keys) - 1))
    expect_close(o, exact(q, keys, values), what="o", rtol=rtol)


def attend_twice(student, q, k, v, table, length, more):
    """Runs beside the student's code: new rows are written into the same pages, as a cache does."""
    first = student.paged_attention(q, k, v, table, length)
    k[:], v[:] = more
    return first, student.paged_attention(q, k, v, table, length)


def attend_to_views(student, q, k, v, table, length):
    """Runs beside the student's code: on the way there a view becomes a tensor of its own."""
    k, v = k.transpose(1, 2).contiguous().transpose(1, 2), v[:, :, :, ::2]
    q = q[:, ::2].T.contiguous().T
    return student.paged_attention(q, k[..., ::2], v, table, length)


@exercise(
    "ex6",
    points=1,
    invariant="bfloat16 pages, pages that are a view of more, the same table or memory twice, q of "
    "another dtype than the pages",
    cause="sums in bfloat16, pages rounded to the dtype of q, a view of contiguous memory asked "
    "for, or something kept from before",
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
    o = student.drive(attend_to_views, q.float(), k.float(), v.float(), table, 60)
    expect_close(expect_tensor(o, "o", torch.float32, (4, 8)), half, what="views", rtol=1e-4)
    q, k, v, table, keys, values = scattered(rng, 20, 8, (4, 2), 16)
    check_attention(student, q.bfloat16(), k, v, table, keys, values)
    low = (k.bfloat16(), v.bfloat16(), table, keys.bfloat16(), values.bfloat16())
    check_attention(student, q, *low)
    calls, state = [], (torch.full((4,), -math.inf), torch.zeros(4), torch.zeros(4, 16))
    for of_q, of_k in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 0)):
        dtypes, parts = (torch.float32, torch.bfloat16), scattered(rng, 20, 8, (4, 2), 16)
        query, *pages = parts[0].to(dtypes[of_q]), *(x.to(dtypes[of_k]) for x in parts[1:3])
        pages = [x.nan_to_num() for x in pages]
        calls.append(("paged_attention", query, *pages, parts[3], 20))
        scores, summed = torch.randn(4, 5, generator=rng), torch.randn(4, 5, 16, generator=rng)
        some = tuple(torch.rand(x.shape, generator=rng) + 1 for x in state)
        for before in (state, some):
            before = {"whole": before}
            calls.append(("absorb", before, {"whole": scores}, {"whole": summed}))
    again(student, calls)
    _, k2, v2, other, keys2, values2 = scattered(rng, 20, 8, (4, 2), 16)
    k2[table[:3]], v2[table[:3]] = k2[other[:3]], v2[other[:3]]
    seen = student.drive(attend_twice, q, k, v, table, 20, (k2, v2))
    for o, of_keys, summed in zip(seen, (keys, keys2), (values, values2), strict=True):
        expect_tensor(o, "o", torch.float32, q.shape)
        expect_close(o, exact(q, of_keys, summed), what="o", rtol=rounding_of(q, of_keys))


def some_scores(rng, heads, n, kind):
    scores = torch.randn(heads, n, generator=rng)
    scores += 200.0 * torch.arange(heads)[:, None] * (kind == "apart")
    kinds = {"zeros": 0 * scores, "tiny": 1e-8 * scores, "low": scores - 9990.0}
    kinds |= {"high": scores + 9990.0, "wide": 1e4 * (2 * torch.rand(heads, n, generator=rng) - 1)}
    kinds |= {"ties": scores.round(), "rising": 50.0 * torch.arange(n) + scores}
    return kinds.get(kind, scores).clamp(-1e4, 1e4)


def some_state(rng, heads, d, kind, size):
    """A state of no keys, or one of some, whose largest score lies anywhere."""
    if kind == "first":
        return torch.full((heads,), -math.inf), torch.zeros(heads), torch.zeros(heads, d)
    m = torch.randn(heads, generator=rng)
    m = m + {"low": -9990.0, "high": 9990.0, "far below": -100.0}.get(kind, 0.0)
    t = 1 + 9 * torch.rand(heads, generator=rng)
    return m.clamp(-1e4, 1e4), t, size * t[:, None] * torch.randn(heads, d, generator=rng)


def expect_absorbed(found, state, scores, values, what):
    """Against float64, within the roundings of its exponentials and sums."""
    assert isinstance(found, tuple) and len(found) == 3, f"{what}: absorb must return (m, t, a)"
    for part, before in zip(found, state, strict=True):
        expect_tensor(part, f"{what}: absorb", torch.float32, tuple(before.shape))
    (m, t, a), n = (x.double() for x in state), scores.shape[1]
    larger = torch.maximum(m, scores.double().amax(-1))
    expect_close(found[0], larger, what=f"{what}: m")
    far, apart = (larger - m), larger[:, None] - scores.double()
    keep, p = torch.exp(-far), torch.exp(-apart)
    # an exponential is off by the rounding of its argument, and a few of its own
    off = torch.cat([(far + n + 16).nan_to_num(0, 0)[:, None], apart + n + 16], 1) * FLOAT32
    terms = torch.cat([(t * keep)[:, None], p], 1)
    bound = (off * terms).sum(1) + 2.0**-120
    expect_at_most((found[1].double() - terms.sum(1)).abs(), bound, f"{what}: the error of t")
    terms = torch.cat([(a * keep[:, None])[:, None], p[..., None] * values.double()], 1)
    size = torch.cat([a[:, None], values.double()], 1).abs().sum(1)
    bound = (off[..., None] * terms.abs()).sum(1) + 2.0**-125 * size + 2.0**-140
    expect_at_most((found[2].double() - terms.sum(1)).abs(), bound, f"{what}: the error of a")


@exercise(
    "ex6",
    points=1,
    invariant="absorb anywhere in what the card admits: every two of heads, keys, sizes, scores, "
    "values and states before",
    cause="a corner where two others meet, such as one key and a state far above it; or memory "
    "used again",
)
def test_anywhere_in_a_state(student, rng):
    scores = ("plain", "zeros", "tiny", "low", "high", "wide", "ties", "rising", "apart")
    states, sizes = ("first", "plain", "low", "high", "far below"), (0.0, 1e-8, 1.0, 1e4, 1e30)
    calls, whats = [], []
    for heads, n, d, kind, before, size, old in every_pair(
        rng, (1, 3, 32), (1, 2, 7, 100), (1, 4, 128), scores, states, sizes, sizes
    ):
        state = some_state(rng, heads, d, before, old)
        values = size * torch.randn(heads, n, d, generator=rng)
        calls.append(("absorb", state, some_scores(rng, heads, n, kind), values))
        whats.append(f"{heads} heads, {n} keys, d {d}, {kind} after {before}, {size:g}, {old:g}")
    for found in student.drive(drive_laid, calls, [0]):
        for result, (_, *args), what in zip(found, calls, whats, strict=True):
            expect_absorbed(tuple(result), *args, what)


def far_apart(rng, heads, length, d, top):
    """(q [H, d], keys [length, Hkv, d]): exact scores, equal or at least an eighth of top apart."""
    h, kv = heads
    sign = (torch.randint(0, 2, (kv, d), generator=rng) * 2 - 1).float()
    q = (torch.randint(0, 2, (h, d), generator=rng) / 2 + 0.5) * sign.repeat_interleave(h // kv, 0)
    q *= top / d**0.5 * (torch.randint(0, 2, (h, 1), generator=rng) * 2 - 1)
    levels = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0])
    return q, sign * levels[torch.randint(0, 5, (length, kv, 1), generator=rng)]


def some_pages(rng, length, size, keys, values, filler, beyond, dtype):
    """(k, v, table) with these rows, and the filler in all others. Block 0 is in use."""
    used, kv, d = -(-length // size), *keys.shape[1:]
    order = torch.randperm(used + 2, generator=rng).tolist()
    order.insert(draw(rng, 0, used - 1), order.pop(order.index(0)))
    k, v = (torch.full(((used + 2) * size, kv, d), x, dtype=dtype) for x in filler)
    rows = torch.tensor([order[p // size] * size + p % size for p in range(length)])
    k[rows], v[rows] = keys, values
    return *(x.unflatten(0, (-1, size)) for x in (k, v)), [*order[:used], *beyond]


def expect_paged(o, q, keys, values, what):
    """Against float64, within what roundings of float32 can do."""
    expect_tensor(o, what, torch.float32, tuple(q.shape))
    d, group = q.shape[1], q.shape[0] // keys.shape[1]
    q, keys, values = q.double(), keys.double(), values.double()
    k, v = (x.repeat_interleave(group, 1).transpose(0, 1) for x in (keys, values))
    scores = (k @ q[:, :, None]).squeeze(-1) / d**0.5
    weights = scores.softmax(-1)
    off = (d + 16) * FLOAT32 * (k.abs() @ q.abs()[:, :, None]).squeeze(-1).amax(-1) / d**0.5
    if scores.abs().max() > 512:  # of `far_apart`: exact
        off = 0 * off
    slack = torch.expm1(2 * off) + (8 * len(keys) + 160) * FLOAT32
    right = (weights[:, None] @ v).squeeze(1)
    bound = slack[:, None] * (weights[:, None] @ v.abs()).squeeze(1) + 2.0**-125 * v.abs().sum(1)
    expect_at_most((o.double() - right).abs(), bound + 2.0**-140, f"{what}: the error")


@exercise(
    "ex6",
    points=1,
    invariant="paged attention anywhere in what the card admits: every two of block sizes, "
    "lengths, heads, sizes, dtypes of q and of the pages, magnitudes, what lies in other rows and "
    "layouts",
    cause="a corner where two others meet, such as one key and bfloat16 in a view; or memory used "
    "again",
)
def test_anywhere_in_pages(student, rng):
    types, nan, inf = (torch.float32, torch.bfloat16), math.nan, math.inf
    calls, checks = [], []
    lengths = ("1", "2", "block", "block + 1", "2 blocks - 1", "30", "300")
    for size, length, heads, d, of_q, of_k, kind, v_size, filler, beyond in every_pair(
        rng, (1, 2, 3, 16, 128), lengths, ((1, 1), (4, 2), (3, 3), (6, 1), (32, 8)),
        (1, 3, 16, 128), types, types, ("plain", "tiny", "tiny keys", "large keys", "large"),
        (0.0, 1e-8, 1.0, 1e4, 1e30), ((nan, nan), (inf, -inf), (0.0, nan), (3e38, -3e38)),
        ((), (10**6,), (-1,), (0,), (-(10**6), 10**6, 2**40)),
    ):  # fmt: skip
        counts = {"block": size, "block + 1": size + 1, "2 blocks - 1": 2 * size - 1}
        n = counts[length] if length in counts else int(length)
        if heads == (32, 8) and d == 128:  # both large at once are in another test
            size, n = min(size, 16), min(n, 40)
        q = torch.randn(heads[0], d, generator=rng).clamp(-1, 1)
        keys = torch.randn(n, heads[1], d, generator=rng).clamp(-1, 1)
        if kind == "large":  # exact where sqrt(d) is
            d = {3: 16, 128: 64}.get(d, d)
            q, keys = far_apart(rng, heads, n, d, 2.0**13)
        sizes = {"tiny": (1e-8, 1.0), "tiny keys": (1.0, 1e-8), "large keys": (1e-4, 1e4)}
        of_queries, of_keys = sizes.get(kind, (1.0, 1.0))
        q, keys = (of_queries * q).to(of_q), (of_keys * keys).to(of_k)
        values = (v_size * torch.randn(n, heads[1], d, generator=rng)).to(of_k)
        k, v, table = some_pages(rng, n, size, keys, values, filler, beyond, of_k)
        calls.append(("paged_attention", q, k, v, table, n))
        what = f"{n} keys in blocks of {size}, heads {heads}, d {d}, {of_q}, {of_k}, {kind}"
        checks.append((q, keys, values, f"{what}, v {v_size:g}, {filler}"))
    for check, results in zip(checks, held(student, rng, calls), strict=True):
        for result in results:
            expect_paged(result, *check)
