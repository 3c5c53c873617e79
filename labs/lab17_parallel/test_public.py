"""Public tests of lab17: what lab.check runs.  All ranks run in one process, one at a time.

A driver gives back what every rank returned, all calls it made, and, where ranks wait for ever, who
waits for whom.  Expectations are float64, with bounds from the roundings of a dtype.
"""

import math

import torch
import torch.nn.functional as F

from efflib.lab import exercise, expect_at_most, expect_close, expect_error, expect_tensor

F32, F64, BF16, I64 = torch.float32, torch.float64, torch.bfloat16, torch.int64
ROUNDING = {F32: 2.0**-24, F64: 2.0**-53, BF16: 2.0**-8}  # relative; 2^-9 for bfloat16, and a sum


def part_of(n, rank, size):
    """The slice of n things that share gives a rank."""
    least, more = divmod(n, size)
    start = rank * least + min(rank, more)
    return slice(start, start + least + (rank < more))


def drive_ranks(student, name, args, strided=False):
    """Runs beside the student's code: its function in all ranks, with a communicator as last.

    strided: tensors of two dimensions or more arrive with another layout.
    """
    import torch

    from efflib.parallel.together import Deadlock, run_together

    def laid(value):
        if isinstance(value, tuple | list):
            return type(value)(laid(part) for part in value)
        if not (strided and isinstance(value, torch.Tensor)) or value.ndim == 0:
            return value
        twice = torch.stack([value.transpose(0, -1)] * 2, -1)
        return twice[..., 0].transpose(0, -1)

    function = getattr(student, name)
    try:
        values, calls, ticks = run_together(function, [laid(tuple(own)) for own in args])
    except Deadlock as fault:
        return {"stuck": str(fault)}
    rows = [[(c.kind, c.peer, list(c.shape), c.sent, c.op) for c in own] for own in calls]
    return {"values": values, "calls": rows, "ticks": ticks}


def drive_parts(student, name, args, strided=False):
    """What a function gives for each args, and how many bytes of memory its tensors keep alive,
    in all and of the arguments'."""
    found = []
    for own in args:
        if strided:
            own = tuple(v.mT.contiguous().mT if getattr(v, "ndim", 0) == 2 else v for v in own)
        made = getattr(student, name)(*own)
        tensors = [t for t in (made if isinstance(made, tuple) else (made,)) if t is not None]
        stores = [t.untyped_storage() for t in tensors]
        kept = {s.data_ptr(): s.nbytes() for s in stores}
        given = {v.untyped_storage().data_ptr() for v in own if hasattr(v, "untyped_storage")}
        shared = sum(size for place, size in kept.items() if place in given)
        found.append((made, (sum(kept.values()), shared)))
    return found


def ranks(student, name, args, what, strided=False):
    """(values, calls by rank, ticks); fails where ranks wait for ever."""
    seen = student.drive(drive_ranks, name, args, strided)
    assert "stuck" not in seen, f"{what}: {seen['stuck']}"
    return seen["values"], seen["calls"], seen["ticks"]


def parts(student, name, args, strided=False):
    return student.drive(drive_parts, name, args, strided)


def own_memory(made, kept, what):
    tensors = [t for t in (made if isinstance(made, tuple) else (made,)) if t is not None]
    bytes_ = sum(t.numel() * t.element_size() for t in tensors)
    expect_at_most(kept[0], bytes_, f"bytes kept alive by {what}")
    expect_at_most(kept[1], 0, f"bytes of {what} that are the argument's own memory")


def one_reduce(calls, numbers, what, ops=("sum",)):
    """Every rank made one call, an all_reduce of so many numbers, by one of ops."""
    for rank, own in enumerate(calls):
        said = ", ".join(f"{c[0]} {c[2]}" for c in own) or "none"
        assert len(own) == 1, f"{what}: rank {rank} made {len(own)} calls ({said}), expected one"
        kind, _, shape, _, op = own[0]
        good = kind == "all_reduce" and op in ops
        assert good, f"{what}: rank {rank} called {said}" + (f" ({op})" if op else "")
        count = math.prod(shape)
        assert count == numbers, f"{what}: rank {rank} reduces {count} numbers, not {numbers}"


def draw(rng, *shape, dtype=F64, scale=1.0):
    return (scale * torch.randn(shape, generator=rng, dtype=F64)).to(dtype)


def whole(value, what):
    assert type(value) is int, f"{what} is {value!r} of type {type(value).__name__}, not an int"
    return value


def real(value, what):
    """A float or an int, as float."""
    ok = isinstance(value, int | float) and not isinstance(value, bool)
    assert ok, f"{what} is of type {type(value).__name__}, not a number"
    return float(value)


def error_bound(terms, inner, dtype):
    """What a sum of products may be off by: terms = sum of |products|, inner = their number."""
    return 2 * (inner + 8) * ROUNDING[dtype] * terms + 1e-300


# ---- exercise 1: two cuts and one meeting ----------------------------------------------------


@exercise(
    "ex1",
    points=2,
    invariant="parts side by side are the whole weight, and keep no more memory than their own",
    cause="outputs and inputs confused, a view that keeps all of w (also in one rank), or a rest "
    "that goes lost",
)
def test_parts_make_the_whole(student, rng):
    for n, k, size in ((4, 6, 2), (5, 7, 3), (2, 3, 4), (3, 2, 1)):
        w, b = draw(rng, n, k, dtype=F32), draw(rng, n, dtype=F32)
        columns = parts(student, "column_part", [(w, b, r, size) for r in range(size)])
        rows = parts(student, "row_part", [(w, r, size) for r in range(size)])
        for r in range(size):
            (made, kept), what = columns[r], f"column_part of {n} x {k}, rank {r} of {size}"
            assert isinstance(made, tuple) and len(made) == 2, f"{what} returned no pair"
            mine = part_of(n, r, size)
            for seen, right, name in zip(made, (w[mine], b[mine]), ("w", "b"), strict=True):
                expect_tensor(seen, f"{name} of {what}", F32, tuple(right.shape))
                expect_close(seen, right, what=f"{name} of {what}")
            own_memory(made, kept, what)
            (made, kept), what = rows[r], f"row_part of {n} x {k}, rank {r} of {size}"
            right = w[:, part_of(k, r, size)]
            expect_tensor(made, what, F32, tuple(right.shape))
            expect_close(made, right, what=what)
            own_memory(made, kept, what)
        (made, _) = parts(student, "column_part", [(w, None, 0, size)])[0]
        assert made[1] is None, "column_part of a layer without bias returned one"


@exercise(
    "ex1",
    points=2,
    invariant="w (3 4 | 5 6), x (1 2), bias (1 1), two ranks: (12 18) in both, by one all_reduce",
    cause="the bias in every rank, or none; more than one call; a sum that one rank alone has",
)
def test_row_linear_by_hand(student, rng):
    w, x = torch.tensor([[3.0, 4.0], [5.0, 6.0]]), torch.tensor([1.0, 2.0])
    for b, right in ((torch.tensor([1.0, 1.0]), [12.0, 18.0]), (None, [11.0, 17.0])):
        args = [(x[r : r + 1], w[:, r : r + 1].clone(), b) for r in range(2)]
        values, calls, _ = ranks(student, "row_linear", args, "row_linear")
        for r, y in enumerate(values):
            what = f"row_linear {'with' if b is not None else 'without'} bias, rank {r}"
            expect_tensor(y, what, F32, (2,))
            assert y.tolist() == right, f"{what}: {y.tolist()}, expected {right}"
        one_reduce(calls, 2, "row_linear")


def mlp(x, w, b):
    gate, up = (F.linear(x, w[i], b[i]) for i in (0, 1))
    return F.linear(F.silu(gate) * up, w[2], b[2])


def mlp_case(rng, d, inner, biased):
    shapes = ((inner, d), (inner, d), (d, inner))
    w = [draw(rng, *s) for s in shapes]
    return w, [draw(rng, s[0]) if biased else None for s in shapes]


def mlp_args(x, w, b, size):
    def column(i, r):
        mine = part_of(len(w[i]), r, size)
        return w[i][mine].clone(), None if b[i] is None else b[i][mine].clone()

    inner = w[2].shape[1]
    return [
        (x, column(0, r), column(1, r), (w[2][:, part_of(inner, r, size)].clone(), b[2]))
        for r in range(size)
    ]


@exercise(
    "ex1",
    points=2,
    invariant="the MLP in 1, 2, 3 and 5 ranks is the MLP in one, with one call of as many "
    "numbers as y",
    cause="a sum before the activation, a bias that counts p times, a call for each layer, "
    "or a rank "
    "without channels that leaves its call out",
)
def test_the_mlp_in_parts(student, rng):
    for size, inner, biased in ((1, 4, True), (2, 6, True), (3, 7, False), (5, 3, True)):
        w, b = mlp_case(rng, 4, inner, biased)
        x = draw(rng, 2, 3, 4)
        what = f"parallel_mlp in {size} ranks"
        values, calls, _ = ranks(student, "parallel_mlp", mlp_args(x, w, b, size), what)
        for y in values:
            expect_tensor(y, what, F64, (2, 3, 4))
            expect_close(y, mlp(x, w, b), what=what, atol=1e-12, rtol=1e-12)
        one_reduce(calls, 24, what)


# ---- exercise 2: heads -----------------------------------------------------------------------


def heads_right(rank, size, heads, kv_heads):
    own = list(range(heads))[part_of(heads, rank, size)]
    kept = sorted({h * kv_heads // heads for h in own})
    return own, kept, [kept.index(h * kv_heads // heads) for h in own]


def three(value, what):
    ok = isinstance(value, tuple) and len(value) == 3 and all(isinstance(v, list) for v in value)
    assert ok, f"{what} returned {value!r}, not a tuple of three lists"
    for part in value:
        for entry in part:
            whole(entry, f"an entry of {what}")
    return value


@exercise(
    "ex2",
    points=2,
    invariant="8 query heads, 2 key heads: rank 1 of 4 has 2 3 and key head 0; rank 1 of 3 "
    "has 3 4 5, "
    "key heads 0 1 and reads 0 1 1",
    cause="key heads dealt out instead of copied, the number of a key head in place of its place "
    "among those kept, or groups that are not cut",
)
def test_heads_by_hand(student, rng):
    for rank, size, heads, kv, right in (
        (1, 4, 8, 2, ([2, 3], [0], [0, 0])),
        (1, 3, 8, 2, ([3, 4, 5], [0, 1], [0, 1, 1])),
        (2, 3, 8, 2, ([6, 7], [1], [0, 0])),
        (3, 4, 6, 6, ([5], [5], [0])),
        (0, 1, 4, 2, ([0, 1, 2, 3], [0, 1], [0, 0, 1, 1])),
        (2, 3, 2, 1, ([], [], [])),
        (2, 5, 16, 16, ([7, 8, 9], [7, 8, 9], [0, 1, 2])),
    ):
        call = f"heads_of({rank}, {size}, {heads}, {kv})"
        seen = three(student.heads_of(rank, size, heads, kv), call)
        assert seen == right, f"{call} is {seen}, expected {right}"
    expect_error(ValueError, lambda: student.heads_of(0, 2, 6, 4), "6 heads, 4 key heads")


@exercise(
    "ex2",
    points=1,
    invariant="parts are cut head by head: queries, keys and values each; and keep their own "
    "memory",
    cause="a slice of the fused weight's rows, columns and rows confused, or a view",
)
def test_fused_parts(student, rng):
    heads, kv, d, width = 4, 2, 2, 3
    qkv, out = draw(rng, (heads + 2 * kv) * d, width), draw(rng, width, heads * d)
    for size in (1, 2, 3):
        made = parts(student, "qkv_part", [(qkv, r, size, heads, kv) for r in range(size)])
        outs = parts(student, "out_part", [(out, r, size, heads) for r in range(size)])
        for r in range(size):
            own, kept, _ = heads_right(r, size, heads, kv)
            blocks = own + [heads + k for k in kept] + [heads + kv + k for k in kept]
            right = torch.cat([qkv[b * d : b * d + d] for b in blocks])
            what = f"qkv_part, rank {r} of {size}"
            expect_tensor(made[r][0], what, F64, tuple(right.shape))
            expect_close(made[r][0], right, what=what)
            own_memory(*made[r], what)
            right, what = out[:, own[0] * d : own[-1] * d + d], f"out_part, rank {r} of {size}"
            expect_tensor(outs[r][0], what, F64, tuple(right.shape))
            expect_close(outs[r][0], right, what=what)
            own_memory(*outs[r], what)


def turned(x):
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def dense_attention(x, qkv, out, heads, kv, d):
    """All of it, head by head, with every score."""
    b, t, _ = x.shape
    blocks = F.linear(x, qkv).view(b, t, heads + 2 * kv, d).transpose(1, 2)
    q, k = turned(blocks[:, :heads]), turned(blocks[:, heads : heads + kv])
    v = blocks[:, heads + kv :]
    ys = []
    for h in range(heads):
        g = h * kv // heads
        scores = q[:, h] @ k[:, g].transpose(1, 2) / math.sqrt(d)
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), -math.inf)
        ys.append(scores.softmax(-1) @ v[:, g])
    return F.linear(torch.cat(ys, -1), out)


def attention_args(x, qkv, out, size, heads, kv, d):
    args = []
    for r in range(size):
        own, kept, reads = heads_right(r, size, heads, kv)
        blocks = own + [heads + k for k in kept] + [heads + kv + k for k in kept]
        rows = [qkv[b * d : b * d + d] for b in blocks]
        columns = [out[:, h * d : h * d + d] for h in own]
        part = torch.cat(rows) if rows else qkv[:0].clone()
        args.append((x, part, torch.cat(columns, 1) if columns else out[:, :0].clone(), reads, d))
    return args


@exercise(
    "ex2",
    points=2,
    invariant="attention in 1 to 7 ranks is attention in one, by one all_reduce of B T D numbers",
    cause="keys repeated as if no group were cut, more than one call, or a rank without heads that "
    "leaves its call out or fails",
)
def test_attention_in_parts(student, rng):
    for size, heads, kv in (
        (1, 4, 2), (2, 4, 4), (3, 8, 2), (4, 4, 1), (7, 6, 3), (2, 8, 2), (4, 14, 2),
    ):  # fmt: skip
        d, width = 4, 6
        qkv, out = draw(rng, (heads + 2 * kv) * d, width), draw(rng, width, heads * d)
        x = draw(rng, 2, 5, width)
        what = f"parallel_attention of {heads} heads, {kv} key heads in {size} ranks"
        args = attention_args(x, qkv, out, size, heads, kv, d)
        values, calls, _ = ranks(student, "parallel_attention", args, what)
        right = dense_attention(x, qkv, out, heads, kv, d)
        for y in values:
            expect_tensor(y, what, F64, tuple(x.shape))
            expect_close(y, right, what=what, atol=1e-4, rtol=1e-4)  # angles are float32
        one_reduce(calls, x.numel(), what)


@exercise(
    "ex2",
    points=1,
    invariant="32 heads, 8 key heads of 128: 2048, 256 and 256 numbers on 1, 8 and 16 ranks",
    cause="divided by the ranks beyond the key heads, or keys without values",
)
def test_numbers_in_the_cache(student, rng):
    for size, right in ((1, (2048, 2048)), (8, (256, 2048)), (16, (256, 4096)), (3, (1024, 2560))):
        seen = student.cached_numbers(size, 32, 8, 128)
        assert isinstance(seen, tuple) and len(seen) == 2, f"cached_numbers returned {seen!r}"
        seen = tuple(whole(n, "a part of cached_numbers") for n in seen)
        assert seen == right, f"cached_numbers({size}, 32, 8, 128) is {seen}, expected {right}"


# ---- exercise 3: a vocabulary in parts -------------------------------------------------------


def vocabulary_parts(table, size):
    """[(rows, start)] of each rank."""
    cuts = [part_of(len(table), r, size) for r in range(size)]
    return [(table[cut].clone(), cut.start) for cut in cuts]


@exercise(
    "ex3",
    points=2,
    invariant="embedding in 1, 2, 3 and 5 ranks: the whole table's rows, exactly, by one "
    "all_reduce",
    cause="an id of another rank used as an index, or rows of other ranks that are not zero",
)
def test_embedding_in_parts(student, rng):
    for size in (1, 2, 3, 5):
        table, ids = draw(rng, 5, 3, dtype=F32), torch.tensor([[3, 0], [1, 2], [3, 4]])
        what = f"embed in {size} ranks"
        args = [(ids, rows, start) for rows, start in vocabulary_parts(table, size)]
        values, calls, _ = ranks(student, "embed", args, what)
        for x in values:
            expect_tensor(x, what, F32, (3, 2, 3))
            expect_close(x, table[ids], what=what)
        one_reduce(calls, 18, what, ("sum", "max"))  # -inf for others' rows is right as well


def numbers_handed(calls, most, what):
    for rank, own in enumerate(calls):
        count = sum(math.prod(c[2]) for c in own if c[0] != "recv")
        expect_at_most(count, most, f"{what}: numbers that rank {rank} hands over")


@exercise(
    "ex3",
    points=2,
    invariant="logits (0, ln 2 | ln 5), target 1: loss ln 4; and the loss of one rank, by "
    "three numbers "
    "a token",
    cause="logits gathered, each rank's own maximum, no maximum, or the target's logit from "
    "every rank",
)
def test_losses_in_parts(student, rng):
    head = torch.tensor([[0.0], [math.log(2)], [math.log(5)]], dtype=F64)
    hidden, targets = torch.ones(1, 1, dtype=F64), torch.tensor([1])
    args = [(hidden, head[:2].clone(), targets, 0), (hidden, head[2:].clone(), targets, 2)]
    values, _, _ = ranks(student, "cross_entropy", args, "cross_entropy")
    for loss in values:
        expect_tensor(loss, "cross_entropy", F64, (1,))
        expect_close(loss, torch.tensor([math.log(4)], dtype=F64), what="the loss", atol=1e-12)
    for size, scale in ((1, 1.0), (2, 30_000.0), (3, 1.0), (6, 5.0)):
        head, hidden = draw(rng, 5, 3), draw(rng, 4, 3, scale=scale)
        targets = torch.tensor([0, 4, 2, 4])
        right = F.cross_entropy(hidden @ head.T, targets, reduction="none")
        what = f"cross_entropy in {size} ranks"
        args = [(hidden, rows, targets, start) for rows, start in vocabulary_parts(head, size)]
        values, calls, _ = ranks(student, "cross_entropy", args, what)
        for loss in values:
            expect_tensor(loss, what, F64, (4,))
            expect_close(loss, right, what=what, atol=1e-12 * max(1, scale), rtol=1e-12)
        numbers_handed(calls, 3 * 4, what)
    # logits that are whole numbers, so also exact in bfloat16: the loss is float32's
    head = torch.arange(20, dtype=BF16)[:, None] % 7
    hidden, targets = torch.tensor([[1.0], [-1.0]], dtype=BF16), torch.tensor([3, 19])
    right = F.cross_entropy((hidden @ head.T).float(), targets, reduction="none")
    args = [(hidden, rows, targets, start) for rows, start in vocabulary_parts(head, 3)]
    for loss in ranks(student, "cross_entropy", args, "cross_entropy of bfloat16")[0]:
        expect_tensor(loss, "cross_entropy of bfloat16", F32, (2,))
        expect_close(loss, right, what="the loss of bfloat16", atol=1e-5)


@exercise(
    "ex3",
    points=2,
    invariant="the largest logit's entry, of equal ones the first, in every rank, by two "
    "numbers a token",
    cause="the place in the rank's part without its start, the last of equal ones, or logits "
    "gathered",
)
def test_next_tokens_in_parts(student, rng):
    head = torch.tensor([[1.0], [3.0], [3.0], [-2.0], [3.0]])
    hidden, right = torch.tensor([[1.0], [-1.0], [0.0]]), [1, 3, 0]
    for size in (1, 2, 3, 7):
        what = f"next_token in {size} ranks"
        args = [(hidden, rows, start) for rows, start in vocabulary_parts(head, size)]
        values, calls, _ = ranks(student, "next_token", args, what)
        for ids in values:
            expect_tensor(ids, what, I64, (3,))
            assert ids.tolist() == right, f"{what}: {ids.tolist()}, expected {right}"
        numbers_handed(calls, 2 * 3, what)
    args = [
        (torch.ones(1, 1), *part) for part in vocabulary_parts(torch.tensor([[-1.0], [-3.0]]), 3)
    ]
    values, _, _ = ranks(student, "next_token", args, "next_token of negative logits")
    seen = [ids.tolist() for ids in values]
    assert seen == [[0]] * 3, f"logits -1 and -3 in 3 ranks: {seen}, expected 0 in each"


# ---- exercise 4: a ring ----------------------------------------------------------------------


def ring_rules(calls, ticks, n, size):
    """Only send and recv with neighbours, 2 (p - 1) messages of n / p, in 6 (p - 1) ticks."""
    for rank, own in enumerate(calls):
        kinds = sorted({c[0] for c in own} - {"send", "recv"})
        assert not kinds, f"rank {rank} of {size} calls {', '.join(kinds)}, not only send and recv"
        around = {(rank + 1) % size, (rank - 1) % size}
        far = sorted({c[1] for c in own} - around)
        assert not far, f"rank {rank} of {size} talks to {far}, who are no neighbours"
        sent = [math.prod(c[2]) for c in own if c[0] == "send"]
        expect_at_most(len(sent), 2 * (size - 1), f"messages that rank {rank} of {size} sends")
        largest = max(sent, default=0)
        expect_at_most(largest, -(-n // size), f"numbers in a message of {n} in {size} ranks")
    expect_at_most(max(ticks), 6 * (size - 1), f"ticks of the ring of {size}")


def same_bits(values, what):
    for rank, y in enumerate(values):
        same = torch.equal(y, values[0])
        assert same, f"{what}: rank {rank} has other bits than rank 0"


@exercise(
    "ex4",
    points=2,
    invariant="(1 2 3), (10 20 30), (100 200 300): (111 222 333) in all three ranks",
    cause="the second round adds again, or chunks are one place off",
)
def test_ring_by_hand(student, rng):
    x = torch.tensor([1.0, 2.0, 3.0])
    args = [(x,), (10 * x,), (100 * x,)]
    values, _, _ = ranks(student, "ring_all_reduce", args, "the ring of 3")
    for rank, y in enumerate(values):
        expect_tensor(y, f"rank {rank}'s sum", F32, (3,))
        assert y.tolist() == [111, 222, 333], f"rank {rank} has {y.tolist()}, not 111 222 333"


@exercise(
    "ex4",
    points=3,
    invariant="only send and recv between neighbours, 2 (p - 1) messages of n / p, all at "
    "the same time, "
    "the same bits everywhere",
    cause="everybody sends first, whole x in every message, ranks that wait in a row, or "
    "sums made anew "
    "in every rank",
)
def test_rings_of_all_sizes(student, rng):
    for size, shape in ((1, (3,)), (2, (5,)), (3, (2, 4)), (4, (3,)), (5, (20,)), (8, (4, 8))):
        xs = [draw(rng, *shape, dtype=F32) for _ in range(size)]
        what = f"the ring of {size}"
        values, calls, ticks = ranks(student, "ring_all_reduce", [(x,) for x in xs], what)
        terms = torch.stack(xs).double()
        for y in values:
            expect_tensor(y, what, F32, shape)
            off = (y.double() - terms.sum(0)).abs()
            bound = error_bound(terms.abs().sum(0), size, F32)
            expect_at_most(off, bound, f"{what}: the error of the sum")
        same_bits(values, what)
        ring_rules(calls, ticks, xs[0].numel(), size)


@exercise(
    "ex4",
    points=1,
    invariant="two ranks send as much as they hand over: all_reduce n, reduce_scatter n / 2",
    cause="a factor 2 too much or too little, or the own part that does not travel counted",
)
def test_bytes_by_hand(student, rng):
    for kind, n, size, right in (
        ("all_reduce", 1000, 2, 1000),
        ("all_reduce", 1000, 4, 1500),
        ("reduce_scatter", 1000, 2, 500),
        ("all_to_all", 1000, 5, 800),
        ("all_gather", 1000, 3, 2000),
        ("all_reduce", 1000, 1, 0),
    ):
        call = f"sent_bytes({kind!r}, {n}, {size})"
        seen = real(student.sent_bytes(kind, n, size), call)
        expect_close(seen, float(right), what=call, atol=1e-9)
    expect_error(ValueError, lambda: student.sent_bytes("broadcast", 8, 2), "kind 'broadcast'")


# ---- exercise 5: schedules -------------------------------------------------------------------


def order_of(value, what):
    """A list of pairs (kind, number)."""
    assert isinstance(value, list), f"{what} returned {type(value).__name__}, not a list"
    for pair in value:
        ok = isinstance(pair, tuple | list) and len(pair) == 2 and pair[0] in ("F", "B")
        assert ok, f"{what} holds {pair!r}, not a pair ('F' or 'B', number)"
        whole(pair[1], f"a micro-batch in {what}")
    return [tuple(pair) for pair in value]


def said(order):
    return " ".join(f"{kind}{i}" for kind, i in order)


def read(text):
    return [(piece[0], int(piece[1:])) for piece in text.split()]


@exercise(
    "ex5",
    points=2,
    invariant="4 micro-batches, stage 0 of 2: F0 F1 F2 F3 B0 B1 B2 B3, and F0 F1 B0 F2 B1 F3 B2 B3",
    cause="one forward too few or too many ahead, or more forwards ahead than there are "
    "micro-batches",
)
def test_orders_by_hand(student, rng):
    for name, stage, stages, micro, right in (
        ("gpipe", 0, 2, 4, "F0 F1 F2 F3 B0 B1 B2 B3"),
        ("gpipe", 1, 2, 1, "F0 B0"),
        ("one_f_one_b", 0, 2, 4, "F0 F1 B0 F2 B1 F3 B2 B3"),
        ("one_f_one_b", 1, 2, 3, "F0 B0 F1 B1 F2 B2"),
        ("one_f_one_b", 0, 4, 2, "F0 F1 B0 B1"),
        ("one_f_one_b", 1, 4, 4, "F0 F1 F2 B0 F3 B1 B2 B3"),
    ):
        call = f"{name}({stage}, {stages}, {micro})"
        seen = order_of(getattr(student, name)(stage, stages, micro), call)
        assert said(seen) == right, f"{call} is {said(seen)}, expected {right}"


def times_of(value, orders, what):
    ok = isinstance(value, list) and len(value) == len(orders)
    assert ok, f"{what} returned {value!r:.60}, not a list for each of {len(orders)} stages"
    for s, (row, order) in enumerate(zip(value, orders, strict=True)):
        ok = isinstance(row, list) and len(row) == len(order)
        assert ok, f"{what}: stage {s} has {row!r:.60}, not {len(order)} times"
    return [[real(t, f"a time of {what}") for t in row] for row in value]


@exercise(
    "ex5",
    points=2,
    invariant="two stages, two micro-batches, f = b = 1, GPipe: stage 0 begins at 0 1 4 5, "
    "stage 1 at 1 2 3 4",
    cause="the last stage's backward waits for a stage that is not there, or a stage begins "
    "before what "
    "it needs is done",
)
def test_times_by_hand(student, rng):
    for texts, f, b, right in (
        (["F0 F1 B0 B1"] * 2, 1, 1, [[0, 1, 4, 5], [1, 2, 3, 4]]),
        (["F0 F1 B0 B1", "F0 B0 F1 B1"], 1.0, 2.0, [[0, 1, 4, 7], [1, 2, 4, 5]]),
        (["F0 B0"], 0.5, 3, [[0, 0.5]]),
        (["F0 F1 F2", "F0 F1 F2"], 2.0, 1.0, [[0, 2, 4], [2, 4, 6]]),
    ):
        orders = [read(text) for text in texts]
        what = f"start_times of {' | '.join(texts)} with {f} and {b}"
        seen = times_of(student.start_times(orders, f, b), orders, what)
        assert seen == right, f"{what} is {seen}, expected {right}"
    stuck = [read("F0 F1"), read("F1 F0")]
    seen = times_of(student.start_times(stuck, 1.0, 1.0), stuck, "start_times of F0 F1 | F1 F0")
    assert seen == [[0, 1], [2, 3]], f"F0 F1 | F1 F0 begin at {seen}, expected [[0, 1], [2, 3]]"
    for texts in (["B0 F0"], ["F0", "F1"], ["F0 B0", "F0"]):
        orders = [read(text) for text in texts]
        call = f"start_times of {' | '.join(texts)}"
        expect_error(ValueError, lambda o=orders: student.start_times(o, 1.0, 1.0), call)


@exercise(
    "ex5",
    points=2,
    invariant="4 stages, 1 micro-batch: three quarters of the time waiting; F0 F1 B0 F2 B1 "
    "B2 holds 2",
    cause="p in place of p - 1, m forgotten, or forwards counted that have been used up",
)
def test_bubble_and_memory_by_hand(student, rng):
    for stages, micro, right in (
        (4, 1, 0.75),
        (1, 5, 0.0),
        (2, 1, 0.5),
        (4, 9, 0.25),
        (3, 6, 0.25),
    ):
        seen = real(student.bubble(stages, micro), "bubble")
        expect_close(seen, right, what=f"bubble({stages}, {micro})", atol=1e-12)
    for text, right in (
        ("F0 F1 B0 F2 B1 B2", 2),
        ("F0 F1 F2 B0 B1 B2", 3),
        ("F0 B0", 1),
        ("", 0),
        ("F0 F1", 2),
        ("F0 B0 F1 F2 F3 B1", 3),
    ):
        seen = whole(student.live(read(text)), "live(...)")
        assert seen == right, f"live of {text or 'nothing'} is {seen}, expected {right}"


# ---- exercise 6: which plan ------------------------------------------------------------------


def pair(value, what):
    ok = isinstance(value, tuple) and len(value) == 2
    assert ok, f"{what} returned {value!r}, not a pair"
    return tuple(real(v, f"a part of {what}") for v in value)


@exercise(
    "ex6",
    points=2,
    invariant="points on a line give the line, from 4 bytes to 40 MB, and nothing is below 0",
    cause="plain least squares, in which the large messages drown alpha, or a negative number",
)
def test_fits_by_hand(student, rng):
    sizes = torch.tensor([4, 4000, 40_000, 40_000_000])
    for alpha, beta in ((1e-5, 1e-9), (3e-6, 2e-12), (1.0, 0.5)):
        seen = pair(student.fit(sizes, alpha + beta * sizes.double()), "fit")
        expect_close(seen[0], alpha, what="alpha", rtol=1e-6)
        expect_close(seen[1], beta, what="beta", rtol=1e-6)
    seconds = torch.tensor([1.0, 2.0], dtype=F64)
    seen = pair(student.fit(torch.tensor([0, 10]), seconds), "fit")
    expect_close(seen[0], 1.0, what="alpha", rtol=1e-9)
    expect_close(seen[1], 0.1, what="beta", rtol=1e-9)
    # a line that falls: beta is 0, and alpha has sum (alpha / t - 1) / t = 0
    seen = pair(student.fit(torch.tensor([0, 10]), seconds.flip(0)), "fit")
    assert seen[1] == 0, f"a line that falls has beta {seen[1]}, expected 0"
    expect_close(seen[0], 1.2, what="alpha of seconds 2 and 1", rtol=1e-9)


JOB = {"layers": 2, "weights": 800, "cache": 10, "flops": 40, "row": 8}
JOB |= {"bandwidth": 100, "peak": 50, "alpha": 0.5, "beta": 0.25}


@exercise(
    "ex6",
    points=2,
    invariant="two layers, 800 bytes, 100 bytes a second, four devices: 2.025 s of reading "
    "and 4 all-reduces",
    cause="messages of n in place of n / p, one all-reduce a layer, the cache that is read "
    "by everybody, "
    "or reading and computing added",
)
def test_tensor_steps_by_hand(student, rng):
    for n, size, right in ((8.0, 4, 6.0), (8.0, 2, 3.0), (0, 3, 2.0), (100, 1, 0.0)):
        call = f"all_reduce_seconds({n}, {size}, 0.5, 0.25)"
        seen = real(student.all_reduce_seconds(n, size, 0.5, 0.25), call)
        expect_close(seen, right, what=call, rtol=1e-12)
    for batch, size, right in (
        (1, 4, 8.1 / 4 + 4 * 6.0),
        (1, 1, 8.1),
        (30, 1, 24.0),
        (30, 2, 256.0),
    ):
        call = f"tensor_step(job, {batch}, {size})"
        seen = real(student.tensor_step(JOB, batch, size), call)
        expect_close(seen, right, what=call, rtol=1e-12)


@exercise(
    "ex6",
    points=2,
    invariant="a step of a pipeline is as long as a token's way through it, or as a stage's turns",
    cause="the bubble of a pipeline that runs empty, weights divided among micro-batches, a "
    "message that "
    "is missing, or only some micro-batches tried",
)
def test_pipelines_and_plans_by_hand(student, rng):
    # a stage of 2: (800 + 10 rows) / 100 / 2 seconds of reading, and 0.5 + 2 rows for the message
    for batch, size, micro, right in (
        (4, 2, 1, 2 * (4.2 + 8.5)),
        (4, 2, 2, 2 * (4.1 + 4.5)),
        (4, 2, 4, 4 * (4.05 + 2.5)),
        (4, 1, 1, 8.4),
        (30, 1, 1, 24.0),
    ):
        call = f"pipeline_step(job, {batch}, {size}, {micro})"
        seen = real(student.pipeline_step(JOB, batch, size, micro), call)
        expect_close(seen, right, what=call, rtol=1e-12)
    for micro in (3, 0):
        call = f"4 sequences in {micro} micro-batches"
        expect_error(ValueError, lambda m=micro: student.pipeline_step(JOB, 4, 2, m), call)
    free = JOB | {"alpha": 0, "beta": 0}
    for job, batch, size, right in (
        (JOB, 4, 2, ("pipeline", 2, 17.2)),
        (JOB, 1, 1, ("tensor", 1, 8.1)),
        (free, 1, 4, ("tensor", 1, 2.025)),
        (JOB | {"alpha": 100, "beta": 0, "cache": 0}, 6, 3, ("pipeline", 1, 308.0)),
    ):
        seen = student.better_plan(job, batch, size)
        what = f"better_plan(job, {batch}, {size})"
        assert isinstance(seen, tuple) and len(seen) == 3, f"{what} returned {seen!r}"
        assert seen[:2] == right[:2], f"{what} is {seen}, expected {right}"
        expect_close(real(seen[2], what), right[2], what=f"seconds of {what}", rtol=1e-12)
