"""Hidden tests of lab17: all ranks in one process, float64 beside, and the sizes that break code.

Inputs are drawn anew for each submission.
"""

import itertools
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
            own = tuple(
                v.repeat_interleave(2, -1).mT.contiguous().mT[..., ::2]
                if getattr(v, "ndim", 0) == 2
                else v.repeat_interleave(2)[::2]
                if getattr(v, "ndim", 0) == 1
                else v
                for v in own
            )
        made = getattr(student, name)(*own)
        tensors = [t for t in (made if isinstance(made, tuple) else (made,)) if t is not None]
        stores = [t.untyped_storage() for t in tensors]
        kept = {s.data_ptr(): s.nbytes() for s in stores}
        given = {v.untyped_storage().data_ptr() for v in own if hasattr(v, "untyped_storage")}
        shared = sum(size for place, size in kept.items() if place in given)
        found.append((made, (sum(kept.values()), shared)))
    return found


def drive_twice(student, name, args):
    """Runs beside the student's code: in each rank a call with args[rank][0], then one with [1]."""
    from efflib.parallel.together import run_together

    def both(first, second, comm):
        function = getattr(student, name)
        return [function(*first, comm), function(*second, comm)]

    return run_together(both, args)[0]


def drive_again(student, calls):
    """Runs beside the student's code: [name(*args)], one after the other."""
    return [getattr(student, name)(*args) for name, args in calls]


def drive_spent(student, name, args):
    """Runs beside the student's code: the lists of a result, of which the first is written into;
    what the others hold then; and the result of the same call once more."""
    made = getattr(student, name)(*args)
    lists = list(made) if isinstance(made, tuple) else [made]
    kept = [list(one) for one in lists]
    if isinstance(lists[0], list):
        lists[0].append(9)
    others = [list(one) for one in lists[1:]]
    return kept, others, getattr(student, name)(*args)


def own_lists(student, name, *args):
    """Who writes into a list that he was given changes no other one, and no later result."""
    kept, others, later = student.drive(drive_spent, name, args)
    what = f"{name}{args}"
    assert others == kept[1:], f"{what}: one list was written into, and another one changed"
    later = [list(one) for one in (later if isinstance(later, tuple) else (later,))]
    assert later == kept, f"{what}: what was written into its list is given out again"


def drive_shared(student, order, stages):
    """Runs beside the student's code: all stages have one list between them."""
    return student.start_times([order] * stages, 1.0, 2.0)


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


def again(student, name, first, second, rights):
    """Two calls in the same ranks, as a model's layers make them.  rights: of the two calls."""
    values = student.drive(drive_twice, name, list(zip(first, second, strict=True)))
    for rank, both in enumerate(values):
        for turn, (seen, right) in enumerate(zip(both, rights, strict=True), start=1):
            what = f"{name} in rank {rank} of {len(values)}, call {turn} of 2"
            expect_tensor(seen, what, right.dtype, tuple(right.shape))
            expect_close(seen, right, what=what, atol=1e-4, rtol=1e-4)  # float32's angles


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


def vocabulary_parts(table, size):
    """[(rows, start)] of each rank."""
    cuts = [part_of(len(table), r, size) for r in range(size)]
    return [(table[cut].clone(), cut.start) for cut in cuts]


def numbers_handed(calls, most, what):
    for rank, own in enumerate(calls):
        count = sum(math.prod(c[2]) for c in own if c[0] != "recv")
        expect_at_most(count, most, f"{what}: numbers that rank {rank} hands over")


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


def times_of(value, orders, what):
    ok = isinstance(value, list) and len(value) == len(orders)
    assert ok, f"{what} returned {value!r:.60}, not a list for each of {len(orders)} stages"
    for s, (row, order) in enumerate(zip(value, orders, strict=True)):
        ok = isinstance(row, list) and len(row) == len(order)
        assert ok, f"{what}: stage {s} has {row!r:.60}, not {len(order)} times"
    return [[real(t, f"a time of {what}") for t in row] for row in value]


def pair(value, what):
    ok = isinstance(value, tuple) and len(value) == 2
    assert ok, f"{what} returned {value!r}, not a pair"
    return tuple(real(v, f"a part of {what}") for v in value)


def integer(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


# ---- exercise 1 ------------------------------------------------------------------------------


@exercise(
    "ex1",
    points=2,
    invariant="parts of any size and dtype, also of nothing, with memory of their own",
    cause="a view, a rest that goes lost, or another dtype",
)
def test_parts_of_any_layer(student, rng):
    for n, k, size in (
        (1, 1, 1),
        (9, 4, 9),
        (3, 10, 4),
        (12, 1, 5),
        (1, 2, 3),
        (30, 40, 7),
        (6, 6, 4),
    ):
        for dtype in (F32, F64, BF16):
            w, b = draw(rng, k, n, dtype=dtype).T, draw(rng, n, dtype=dtype)
            odd = dtype != F32  # another layout
            args = [(w, b, r, size) for r in range(size)]
            columns = parts(student, "column_part", args, odd)
            rows = parts(student, "row_part", [(w, r, size) for r in range(size)], odd)
            for r in range(size):
                rights = w[part_of(n, r, size)], b[part_of(n, r, size)]
                for seen, right in zip(columns[r][0], rights, strict=True):
                    expect_tensor(seen, "column_part", dtype, tuple(right.shape))
                    expect_close(seen, right, what="column_part")
                right = w[:, part_of(k, r, size)]
                expect_tensor(rows[r][0], "row_part", dtype, tuple(right.shape))
                expect_close(rows[r][0], right, what="row_part")
                own_memory(*columns[r], "column_part")
                own_memory(*rows[r], "row_part")


@exercise(
    "ex1",
    points=3,
    invariant="a row parallel layer in up to nine ranks, in all dtypes and sizes, the bias once",
    cause="the bias p times, a rank without inputs that calls nothing, or a sum in another dtype",
)
def test_row_layers_of_any_size(student, rng):
    cases = [(1, 3, 4, F64), (2, 5, 4, F32), (4, 3, 2, BF16), (9, 2, 5, F64), (3, 16, 8, BF16)]
    for size, k, n, dtype in cases:
        for shape in ((), (0,), (3,), (2, 1), (2, 3), (2, 0)):
            scale, biased = 10.0 ** integer(rng, -8, 4), len(shape) != 1 or shape[0] == 3
            x, w = draw(rng, *shape, k, dtype=dtype, scale=scale), draw(rng, n, k, dtype=dtype)
            b = draw(rng, n, dtype=dtype, scale=scale) if biased else None
            cuts = [part_of(k, r, size) for r in range(size)]
            args = [(x[..., cut], w[:, cut].clone(), b) for cut in cuts]
            what = f"row_linear of {k} inputs in {size} ranks"
            values, calls, _ = ranks(student, "row_linear", args, what, strided=dtype != F32)
            right, terms = x.double() @ w.double().T, x.double().abs() @ w.double().abs().T
            if b is not None:
                right, terms = right + b.double(), terms + b.double().abs()
            for y in values:
                expect_tensor(y, what, dtype, (*shape, n))
                off = (y.double() - right).abs()
                expect_at_most(off, error_bound(terms, k + size, dtype), f"the error of {what}")
            one_reduce(calls, math.prod(shape) * n, what)
    for scale in (1e-8, 1e4):  # both ends, under every seed
        x, w = scale + draw(rng, 4, scale=scale, dtype=F32).abs(), draw(rng, 3, 4, dtype=F32)
        b = scale + draw(rng, 3, scale=scale, dtype=F32).abs()
        args = [(x[r : r + 1], w[:, r : r + 1].clone(), b) for r in range(4)]
        values, _, _ = ranks(student, "row_linear", args, "row_linear")
        right = x.double() @ w.double().T + b.double()
        for y in values:
            expect_close(y, right.float(), what="row_linear", atol=1e-5 * scale)


@exercise(
    "ex1",
    points=3,
    invariant="the MLP against float64 in all dtypes and with no token, one call each time",
    cause="a bias that is lost or doubled, silu of the wrong factor, or no call where there "
    "is no token",
)
def test_mlps_of_any_size(student, rng):
    for size, inner, dtype, shape in (
        (1, 1, F32, (2,)),
        (3, 8, F32, (2, 3)),
        (9, 4, F64, (1,)),
        (2, 5, BF16, (2, 2)),
        (4, 6, F64, (0,)),
        (2, 6, F32, ()),
        (1, 4, F64, (4,)),  # all weights square
        (2, 5, F32, (2, 0)),
    ):
        biased = integer(rng, 0, 1) == 1 or size in (3, 9)
        w, b = mlp_case(rng, 4, inner, biased)
        w, b = [t.to(dtype) for t in w], [None if t is None else t.to(dtype) for t in b]
        x = draw(rng, *shape, 4, dtype=dtype)
        what = f"parallel_mlp of {inner} channels in {size} ranks"
        args = mlp_args(x, w, b, size)
        values, calls, _ = ranks(
            student, "parallel_mlp", args, what, strided=size > 2 or dtype == BF16
        )
        precise = [[None if t is None else t.double() for t in ts] for ts in (w, b)]
        exact = mlp(x.double(), *precise)
        slack = {F32: 1e-4, F64: 1e-12, BF16: 1.0}[dtype]  # of sums of some 30 terms near 1
        for y in values:
            expect_tensor(y, what, dtype, (*shape, 4))
            expect_at_most((y.double() - exact).abs(), slack * (1 + exact.abs()) / 8, what)
        one_reduce(calls, x.numel(), what)
    for chosen in itertools.product((False, True), repeat=3):  # only some layers have a bias
        w, b = mlp_case(rng, 4, 5, True)
        b = [t if has else None for t, has in zip(b, chosen, strict=True)]
        x = draw(rng, 2, 4)
        what = f"parallel_mlp, biases of gate, up and down: {chosen}"
        for y in ranks(student, "parallel_mlp", mlp_args(x, w, b, 2), what)[0]:
            expect_close(y, mlp(x, w, b), what=what, atol=1e-12, rtol=1e-12)
    for scale in (1e-8, 1e4):  # silu of the smallest and of the largest
        for dtype in (F32, F64, BF16):
            (g, u, d), b = mlp_case(rng, 4, 6, False)
            w, x = [t.to(dtype) for t in (g, u, d)], draw(rng, 3, 4, dtype=dtype, scale=scale)
            values, *_ = ranks(student, "parallel_mlp", mlp_args(x, w, b, 2), "parallel_mlp")
            g, u, d, x = (t.double() for t in (*w, x))
            terms = (x.abs() @ g.abs().T) * (x.abs() @ u.abs().T) @ d.abs().T
            bound = 4 * error_bound(terms, 4 + 6, dtype)  # silu grows by 1.1 at most, and twice 4
            for y in values:
                off = (y.double() - mlp(x, (g, u, d), b)).abs()
                expect_at_most(off, bound, "the error of parallel_mlp")


@exercise(
    "ex1",
    points=1,
    invariant="two layers of the same shapes, one after the other: each its own part and result",
    cause="something kept from the call before: results by shape, or memory that is filled again",
)
def test_layers_one_after_the_other(student, rng):
    cases = [mlp_case(rng, 4, 6, True) for _ in range(2)]
    xs = [draw(rng, 3, 4) for _ in range(2)]
    both = [mlp_args(x, w, b, 2) for x, (w, b) in zip(xs, cases, strict=True)]
    rights = [mlp(x, w, b) for x, (w, b) in zip(xs, cases, strict=True)]
    again(student, "parallel_mlp", *both, rights)
    rows = [[(x[:, :2], w[0][:, :2], b[0]), (x[:, 2:], w[0][:, 2:], b[0])]
            for x, (w, b) in zip(xs, cases, strict=True)]  # fmt: skip
    rights = [F.linear(x, w[0], b[0]) for x, (w, b) in zip(xs, cases, strict=True)]
    again(student, "row_linear", *rows, rights)
    calls = [("column_part", (w[0], b[0], 1, 2)) for w, b in cases]
    calls += [("row_part", (w[0], 1, 2)) for w, _ in cases]
    seen = student.drive(drive_again, calls)
    for i, (w, b) in enumerate(cases):
        for part, right in zip(seen[i], (w[0][3:], b[0][3:]), strict=True):
            expect_close(part, right, what="the part of a layer of the same shape")
        expect_close(seen[2 + i], w[0][:, 2:], what="the part of a layer of the same shape")


# ---- exercise 2 ------------------------------------------------------------------------------


@exercise(
    "ex2",
    points=2,
    invariant="heads of any model in any number of ranks: query heads dealt out, key heads "
    "where they are read",
    cause="a group that is cut, ranks beyond the heads, or heads that are no multiple",
)
def test_heads_of_any_model(student, rng):
    for heads, kv in ((1, 1), (6, 6), (12, 4), (32, 8), (71, 1), (14, 2), (16, 16), (40, 40)):
        for size in (1, 2, 3, 5, 8, 33, 40):
            for rank in sorted({0, size // 2, size - 1}):
                call = f"heads_of({rank}, {size}, {heads}, {kv})"
                seen = three(student.heads_of(rank, size, heads, kv), call)
                assert seen == heads_right(rank, size, heads, kv), f"{call} is wrong"
    for args in ((0, 2, 4, 4), (1, 2, 8, 2), (0, 1, 6, 1)):
        own_lists(student, "heads_of", *args)
    for heads, kv in ((5, 2), (8, 3), (2, 4)):
        for place in ((0, 1), (1, 3), (8, 9)):  # also of a rank that has no head
            call = f"heads_of{(*place, heads, kv)}"
            expect_error(
                ValueError, lambda p=place, h=heads, k=kv: student.heads_of(*p, h, k), call
            )


@exercise(
    "ex2",
    points=2,
    invariant="parts of fused weights of any dtype and layout, also for a rank without a head",
    cause="d taken from the wrong number of heads, an empty index, or a view",
)
def test_parts_of_any_heads(student, rng):
    for heads, kv, d, size, dtype, width in (
        (6, 3, 2, 4, F32, 5),
        (4, 1, 4, 5, BF16, 5),
        (3, 3, 2, 2, F64, 6),  # out is square
        (2, 1, 2, 2, F64, 8),  # qkv is square
        (8, 2, 2, 3, F32, 5),
    ):
        rows = (heads + 2 * kv) * d
        qkv, out = draw(rng, width, rows, dtype=dtype).T, draw(rng, heads * d, width, dtype=dtype).T
        right = attention_args(None, qkv, out, size, heads, kv, d)
        args = [(qkv, r, size, heads, kv) for r in range(size)]
        made = parts(student, "qkv_part", args, strided=size > 2)
        outs = parts(student, "out_part", [(out, r, size, heads) for r in range(size)], size > 2)
        for r, (_, q, o, *_) in enumerate(right):
            for (seen, kept), want, what in ((made[r], q, "qkv_part"), (outs[r], o, "out_part")):
                expect_tensor(seen, what, dtype, tuple(want.shape))
                expect_close(seen, want, what=what)
                own_memory(seen, kept, what)


@exercise(
    "ex2",
    points=3,
    invariant="attention against every score, in all dtypes, in up to nine ranks, one call "
    "each time",
    cause="groups that are cut, a single token, or heads put together in another order",
)
def test_attention_of_any_model(student, rng):
    for size, heads, kv, d, t, dtype in (
        (1, 1, 1, 2, 1, F64),
        (5, 12, 4, 4, 6, F64),
        (3, 8, 2, 4, 4, F64),
        (9, 8, 2, 2, 3, F64),
        (2, 16, 4, 2, 3, F64),
        (4, 14, 2, 4, 3, F64),
        (1, 3, 3, 2, 6, F64),  # out is square, and x
        (2, 4, 2, 4, 40, F64),
        (2, 6, 6, 8, 1, F32),
        (3, 4, 2, 4, 7, F32),
        (2, 4, 2, 4, 5, BF16),
    ):
        width = 6
        qkv = draw(rng, (heads + 2 * kv) * d, width, dtype=dtype)
        out = draw(rng, width, heads * d, dtype=dtype)
        x = draw(rng, t, 1 + size % 4, width, dtype=dtype).transpose(0, 1)
        what = f"attention of {heads} heads, {kv} key heads in {size} ranks"
        args = attention_args(x, qkv, out, size, heads, kv, d)
        values, calls, _ = ranks(student, "parallel_attention", args, what, strided=size > 2)
        exact = dense_attention(x.double(), qkv.double(), out.double(), heads, kv, d)
        typical = exact.square().mean().sqrt() + 1
        slack = {F64: 1e-4, F32: 1e-3, BF16: 0.3}[dtype]  # float32 angles; scores of some units
        for y in values:
            expect_tensor(y, what, dtype, tuple(x.shape))
            expect_at_most((y.double() - exact).abs(), slack * typical, f"the error of {what}")
        one_reduce(calls, x.numel(), what)


@exercise(
    "ex2",
    points=1,
    invariant="numbers in the cache of any model, counted rank by rank",
    cause="the mean in place of the fullest, or copies that do not count in all",
)
def test_caches_of_any_model(student, rng):
    models = ((1, 1), (6, 6), (12, 4), (64, 8), (8, 1), (14, 2), (24, 8), (40, 5))
    calls = [
        (size, heads, kv, (2, 32, 128)[(size + heads) % 3])
        for heads, kv in models
        for size in (1, 2, 3, 4, 5, 7, 9, 16, 50)
    ]
    for args, seen in zip(
        calls, student.many("cached_numbers", [(args, {}) for args in calls]), strict=True
    ):
        size, heads, kv, d = args
        kept = [2 * d * len(heads_right(r, size, heads, kv)[1]) for r in range(size)]
        assert isinstance(seen, tuple) and len(seen) == 2, "cached_numbers returned no pair"
        seen = tuple(whole(n, "cached_numbers") for n in seen)
        assert seen == (max(kept), sum(kept)), f"cached_numbers{args} is wrong"


@exercise(
    "ex2",
    points=1,
    invariant="two layers of the same shapes, one after the other: each its own part and result",
    cause="something kept from the call before: results by shape, or memory that is filled again",
)
def test_attentions_one_after_the_other(student, rng):
    heads, kv, d, width = 4, 2, 2, 6
    xs, qkvs, outs = ([draw(rng, *shape) for _ in range(2)]
                      for shape in ((1, 4, width), (16, width), (width, 8)))  # fmt: skip
    made = list(zip(xs, qkvs, outs, strict=True))
    both = [attention_args(x, qkv, out, 2, heads, kv, d) for x, qkv, out in made]
    rights = [dense_attention(x, qkv, out, heads, kv, d) for x, qkv, out in made]
    again(student, "parallel_attention", *both, rights)
    calls = [("qkv_part", (qkv, 1, 2, heads, kv)) for qkv in qkvs]
    calls += [("out_part", (out, 1, 2, heads)) for out in outs]
    seen = student.drive(drive_again, calls)
    for i, args in enumerate(both):
        for part, right in ((seen[i], args[1][1]), (seen[2 + i], args[1][2])):
            expect_close(part, right, what="the part of a layer of the same shape")


# ---- exercise 3 ------------------------------------------------------------------------------


@exercise(
    "ex3",
    points=2,
    invariant="embeddings in all dtypes, of ids of any shape, in ranks that have none of the table",
    cause="an empty table that is indexed, ids of one dimension only, or a sum that rounds",
)
def test_embeddings_of_any_table(student, rng):
    for size, v, shape, dtype in (
        (1, 1, (2,), F32),
        (9, 5, (3, 2), F64),
        (3, 8, (), BF16),
        (4, 2, (0,), F32),
        (2, 300, (40,), BF16),
        (3, 9, (2, 0), F32),
        (4, 7, (5, 1), BF16),
        (1, 3, (3,), F64),
        (2, 7, (2, 3, 2), F32),
    ):
        table = draw(rng, v, 3, dtype=dtype, scale=10.0 ** integer(rng, -6, 4))
        table[0] *= 1e6  # the largest and the smallest that a sum must leave as they are
        table[-1] *= 1e-6
        ids = torch.randint(v, shape, generator=rng)
        what = f"embed of {v} rows in {size} ranks"
        args = [(ids, rows, start) for rows, start in vocabulary_parts(table, size)]
        values, calls, _ = ranks(student, "embed", args, what, strided=size > 3)
        for x in values:
            expect_tensor(x, what, dtype, (*shape, 3))
            expect_close(x, table[ids], what=what)
        one_reduce(calls, 3 * math.prod(shape), what, ("sum", "max"))


@exercise(
    "ex3",
    points=3,
    invariant="losses against float64, with logits from 1e-8 to 1e4, in all dtypes, by three "
    "numbers a token",
    cause="exp that overflows, a rank without rows, a loss in bfloat16, or logits that travel",
)
def test_losses_of_any_vocabulary(student, rng):
    for size, v, t, dtype, scale in (
        (1, 1, 2, F32, 1.0),
        (2, 7, 5, F32, 1e4),
        (9, 4, 3, F64, 1e4),
        (3, 40, 4, F32, 1e-8),
        (4, 30, 6, BF16, 1.0),
        (3, 6, 0, F64, 1.0),
        (5, 60, 8, F32, 30.0),
        (3, 40, 4, F64, 1e-8),
        (9, 4, 3, BF16, 1.0),
        (2, 5, 0, BF16, 1.0),
        (1, 4, 4, F64, 1.0),
    ):
        head, hidden = draw(rng, v, 4, dtype=dtype), draw(rng, t, 4, dtype=dtype, scale=scale)
        targets = torch.randint(v, (t,), generator=rng)
        exact = F.cross_entropy(hidden.double() @ head.double().T, targets, reduction="none")
        terms = (hidden.double().abs() @ head.double().abs().T).amax(1)
        what = f"cross_entropy of {v} entries in {size} ranks"
        args = [(hidden, rows, targets, start) for rows, start in vocabulary_parts(head, size)]
        values, calls, _ = ranks(student, "cross_entropy", args, what, strided=size > 3)
        own = F64 if dtype == F64 else F32
        for loss in values:
            expect_tensor(loss, what, own, (t,))
            bound = 4 * error_bound(terms, 4, dtype) + 64 * ROUNDING[own] * (1 + v + exact.abs())
            expect_at_most((loss.double() - exact).abs(), bound, f"the error of {what}")
        numbers_handed(calls, 3 * t, what)
    for v in (40, 200):  # small whole logits, exact in bfloat16: all else is float32's
        head = torch.randint(-3, 4, (v, 2), generator=rng).to(BF16)
        hidden = torch.randint(-2, 3, (5, 2), generator=rng).to(BF16)
        targets = torch.randint(v, (5,), generator=rng)
        exact = F.cross_entropy(hidden.double() @ head.double().T, targets, reduction="none")
        args = [(hidden, rows, targets, s) for rows, s in vocabulary_parts(head, 3)]
        for loss in ranks(student, "cross_entropy", args, "cross_entropy of bfloat16")[0]:
            expect_tensor(loss, "cross_entropy", F32, (5,))
            bound = 64 * ROUNDING[F32] * (1 + v + exact.abs())
            expect_at_most((loss.double() - exact).abs(), bound, "the error of a loss of bfloat16")
    targets = torch.tensor([1])
    far = torch.tensor([[100.0], [0.30078125], [97.5]], dtype=BF16)  # whose differences it rounds
    for sign in (1.0, -1.0):
        exact = F.cross_entropy(sign * far.double().T, targets, reduction="none")
        hidden = torch.full((1, 1), sign, dtype=BF16)
        for size in (1, 3):
            args = [(hidden, rows, targets, s) for rows, s in vocabulary_parts(far, size)]
            for loss in ranks(student, "cross_entropy", args, "cross_entropy of bfloat16")[0]:
                off = (loss.double() - exact).abs()
                expect_at_most(off, 1e-3, "the error of a loss of logits far apart in bfloat16")
    low = torch.tensor([[-1000.0], [-1001.0], [-1002.0]])  # all far below 0
    args = [(torch.ones(1, 1), rows, targets, s) for rows, s in vocabulary_parts(low, 2)]
    values, _, _ = ranks(student, "cross_entropy", args, "cross_entropy")
    right = math.log(1 + math.e + math.exp(-1))
    for loss in values:
        expect_close(loss, torch.tensor([right]), what="the loss of logits near -1000", atol=1e-4)
    for dtype in (F32, F64, BF16):  # the same where ranks without a row look on
        own, low = F64 if dtype == F64 else F32, torch.tensor([[-8192.0], [-10240.0]], dtype=dtype)
        hidden = torch.ones(2, 1, dtype=dtype)
        args = [(hidden, *part) for part in vocabulary_parts(low, 5)]
        args = [(h, rows, torch.tensor([0, 1]), s) for h, rows, s in args]
        for loss in ranks(student, "cross_entropy", args, "cross_entropy")[0]:
            expect_tensor(loss, "cross_entropy", own, (2,))
            what = "the loss of logits -8192 and -10240 in 5 ranks"
            expect_close(loss, torch.tensor([0.0, 2048.0], dtype=own), what=what, atol=1e-2)


@exercise(
    "ex3",
    points=3,
    invariant="next tokens with ties in and across ranks, large ids, all dtypes, by two "
    "numbers a token",
    cause="the last of equal ones, the lowest rank's in place of the largest, or ids in bfloat16",
)
def test_next_tokens_of_any_vocabulary(student, rng):
    cases = [(1, 1, 1, F32), (4, 9, 6, F64), (9, 5, 3, BF16), (3, 8, 0, F32), (1, 2, 2, F64)]
    for size, v, t, dtype in cases:
        head = torch.randint(-2, 3, (v, 2), generator=rng).to(dtype)  # many ties, exact
        hidden = torch.randint(-2, 3, (t, 2), generator=rng).to(dtype)
        logits = hidden.double() @ head.double().T
        right = [int((row == row.max()).nonzero()[0]) for row in logits]
        what = f"next_token of {v} entries in {size} ranks"
        args = [(hidden, rows, start) for rows, start in vocabulary_parts(head, size)]
        values, calls, _ = ranks(student, "next_token", args, what, strided=size > 3)
        for ids in values:
            expect_tensor(ids, what, I64, (t,))
            assert ids.tolist() == right, f"{what}: other tokens than those of the whole vocabulary"
        numbers_handed(calls, 2 * t, what)
    for dtype in (F32, F64, BF16):  # neighbours in their dtype, all above or all below 0
        steps = torch.tensor([[0], [1], [3], [2], [3]], dtype=F64)
        head = 1 + steps * torch.finfo(dtype).eps
        for size, sign in ((1, 1.0), (2, 1.0), (3, 1.0), (7, 1.0), (1, -1.0), (2, -1.0), (7, -1.0)):
            hidden = torch.tensor([[sign]], dtype=dtype)
            parts_ = vocabulary_parts(head.to(dtype), size)
            what = f"next_token of neighbouring logits in {size} ranks"
            values, *_ = ranks(student, "next_token", [(hidden, *part) for part in parts_], what)
            seen, right = [ids.tolist() for ids in values], [2 if sign > 0 else 0]
            assert seen == [right] * size, f"{what}: not the whole vocabulary's"
    for dtype in (F32, F64, BF16):  # neighbours among the hidden numbers; very low logits
        eps = torch.finfo(dtype).eps
        hidden = torch.tensor([[1, 1 + eps], [1 + eps, 1]], dtype=dtype)
        head = torch.tensor([[0, 0], [1, 0], [0, 1]], dtype=dtype)
        low = torch.tensor([[-3e30], [-2e30], [-3e30]], dtype=dtype)
        for size in (1, 2, 3, 6):
            args = [(hidden, *part) for part in vocabulary_parts(head, size)]
            what = f"next_token of neighbouring numbers in {size} ranks"
            for ids in ranks(student, "next_token", args, what)[0]:
                assert ids.tolist() == [2, 1], f"{what}: not the whole vocabulary's"
            args = [(torch.ones(1, 1, dtype=dtype), *part) for part in vocabulary_parts(low, size)]
            what = f"next_token of logits below -1e30 in {size} ranks"
            for ids in ranks(student, "next_token", args, what)[0]:
                assert ids.tolist() == [1], f"{what}: not the whole vocabulary's"
    for dtype in (F32, BF16):
        head, where = torch.zeros(250_000, 1, dtype=dtype), integer(rng, 240_001, 249_998)
        head[where] = head[where + 1] = 2.0
        hidden = torch.tensor([[1.0], [-1.0]], dtype=dtype)
        args = [(hidden, rows, start) for rows, start in vocabulary_parts(head, 2)]
        values, _, _ = ranks(student, "next_token", args, "next_token of 250000 entries")
        for ids in values:
            expect_tensor(ids, "next_token", I64, (2,))
            assert ids.tolist() == [where, 0], "next_token of 250000 entries is another one"


@exercise(
    "ex3",
    points=1,
    invariant="two texts of the same length, one after the other: each its own result",
    cause="something kept from the call before: results by shape, or memory that is filled again",
)
def test_texts_one_after_the_other(student, rng):
    table, texts = draw(rng, 9, 3), [torch.randperm(9, generator=rng)[:4] for _ in range(2)]
    cut = vocabulary_parts(table, 3)
    both = [[(ids, rows, start) for rows, start in cut] for ids in texts]
    again(student, "embed", *both, [table[ids] for ids in texts])
    hidden = [table[ids] for ids in texts]
    both = [[(h, rows, ids, start) for rows, start in cut]
            for h, ids in zip(hidden, texts, strict=True)]  # fmt: skip
    logits = [h @ table.T for h in hidden]
    rights = [F.cross_entropy(row, ids, reduction="none")
              for row, ids in zip(logits, texts, strict=True)]  # fmt: skip
    again(student, "cross_entropy", *both, rights)
    both = [[(h, rows, start) for rows, start in cut] for h in hidden]
    again(student, "next_token", *both, [row.argmax(1) for row in logits])


# ---- exercise 4 ------------------------------------------------------------------------------


@exercise(
    "ex4",
    points=4,
    invariant="sums of any shape, layout and dtype in one to nine ranks, by the ring's rules",
    cause="fewer numbers than ranks, no number, integers summed as floats, or a shape that is lost",
)
def test_rings_of_any_tensor(student, rng):
    for size, shape, dtype in (
        (1, (), F32),
        (2, (), F64),
        (3, (0,), F32),
        (9, (4,), F32),
        (4, (2, 0, 3), BF16),
        (5, (3, 7), BF16),
        (6, (2, 2, 5), F64),
        (7, (50,), I64),
        (3, (1, 3, 4), F32),
        (3, (3, 3), F64),
        (3, (40, 50), F64),
        (13, (30,), F32),
    ):
        scale = 10.0 ** integer(rng, -8, 4)
        xs = [draw(rng, *shape, scale=scale).to(dtype) for _ in range(size)]
        if dtype == I64:
            xs = [torch.randint(-(2**60), 2**60, shape, generator=rng) for _ in range(size)]
        what = f"the ring of {size} with {dtype} {list(shape)}"
        args = [(x,) for x in xs]
        values, calls, ticks = ranks(student, "ring_all_reduce", args, what, strided=size > 2)
        for y in values:
            expect_tensor(y, what, dtype, shape)
            if dtype == I64:
                expect_close(y, torch.stack(xs).sum(0), what=what)
                continue
            terms = torch.stack(xs).double()
            off = (y.double() - terms.sum(0)).abs()
            bound = error_bound(terms.abs().sum(0), size, dtype)
            expect_at_most(off, bound, f"{what}: the error of the sum")
        same_bits(values, what)
        ring_rules(calls, ticks, xs[0].numel(), size)
        for rank, own in enumerate(calls):  # messages are of the dtype of x
            sizes = {c[3] / math.prod(c[2]) for c in own if c[0] == "send" and math.prod(c[2])}
            wrong = sizes - {xs[0].element_size()}
            assert not wrong, f"{what}: rank {rank} sends numbers of {wrong} bytes"
    for scale in (1e-8, 1e4):
        xs = [draw(rng, 6, dtype=F32, scale=scale) for _ in range(3)]
        values, _, _ = ranks(student, "ring_all_reduce", [(x,) for x in xs], "the ring of 3")
        expect_close(values[1], sum(xs), what="the sum", atol=1e-6 * scale)


@exercise(
    "ex4",
    points=2,
    invariant="every rank takes part: all send, and what all send together is what sent_bytes says",
    cause="a rank that collects and hands out, or bytes that are not those of a ring",
)
def test_what_a_ring_sends(student, rng):
    for size, n in ((2, 8), (3, 12), (4, 20), (8, 24)):
        xs = [draw(rng, n, dtype=F32) for _ in range(size)]
        what = f"the ring of {size}"
        values, calls, ticks = ranks(student, "ring_all_reduce", [(x,) for x in xs], what)
        expect_close(values[0], torch.stack(xs).sum(0), what=what, atol=1e-5)
        right = 8.0 * (size - 1) * n / size
        said_ = real(student.sent_bytes("all_reduce", 4 * n, size), "sent_bytes")
        expect_close(said_, right, what=f"sent_bytes('all_reduce', {4 * n}, {size})", rtol=1e-12)
        for rank, own in enumerate(calls):
            sent = float(sum(c[3] for c in own))
            expect_at_most(sent, right, f"{what}: bytes that rank {rank} sends")
        ring_rules(calls, ticks, n, size)


@exercise(
    "ex4",
    points=2,
    invariant="bytes of every kind, for any size and n, also of one rank and of nothing",
    cause="the own part counted, a factor of the wrong kind, or an unknown kind that gets a number",
)
def test_bytes_of_every_kind(student, rng):
    for size in (1, 2, 3, 8, 100):
        for n in (0, 1, integer(rng, 2, 10**6), 10**9):
            for kind, factor in (
                ("all_reduce", 2 * (size - 1) / size),
                ("reduce_scatter", (size - 1) / size),
                ("all_to_all", (size - 1) / size),
                ("all_gather", size - 1),
            ):
                call = f"sent_bytes({kind!r}, {n}, {size})"
                expect_close(real(student.sent_bytes(kind, n, size), call), factor * n, what=call,
                             rtol=1e-12)  # fmt: skip
    others = ["", "reduce", "ALL_REDUCE", "gather", "scatter", "send", "recv", "broadcast", "all"]
    others += ["all_", "all_reduce_scatter", "all_gather_into", "reduce_scatter_all", "to_all"]
    for kind in others:
        for n, size in ((8, 2), (8, 1), (0, 3)):  # also where nothing travels
            call = f"sent_bytes({kind!r}, {n}, {size})"
            expect_error(ValueError, lambda a=(kind, n, size): student.sent_bytes(*a), call)


@exercise(
    "ex4",
    points=1,
    invariant="two sums one after the other, of the same shape: each its own",
    cause="something kept from the call before: results by shape, or memory that is filled again",
)
def test_rings_one_after_the_other(student, rng):
    xs = [[draw(rng, 7) for _ in range(3)] for _ in range(2)]
    both = [[(x,) for x in turn] for turn in xs]
    again(student, "ring_all_reduce", *both, [sum(turn) for turn in xs])


# ---- exercise 5 ------------------------------------------------------------------------------


@exercise(
    "ex5",
    points=3,
    invariant="orders of up to twelve stages and forty micro-batches",
    cause="more stages than micro-batches, or a rest of backwards that is missing",
)
def test_orders_of_any_size(student, rng):
    for stages in (1, 2, 5, 8, 12, 30):
        for micro in (1, 2, stages, stages + 1, 40, 300):
            for stage in sorted({0, stages // 2, stages - 1}):
                forwards, backwards = ([(k, i) for i in range(micro)] for k in "FB")
                call = f"gpipe({stage}, {stages}, {micro})"
                seen = order_of(student.gpipe(stage, stages, micro), call)
                assert seen == forwards + backwards, f"{call} is another order"
                ahead = min(stages - stage, micro)
                right = forwards[:ahead]
                rest = forwards[ahead:]
                for i, back in enumerate(backwards):
                    right += [back, *rest[i : i + 1]]
                call = f"one_f_one_b({stage}, {stages}, {micro})"
                seen = order_of(student.one_f_one_b(stage, stages, micro), call)
                assert seen == right, f"{call} is another order"
    for name in ("gpipe", "one_f_one_b"):
        own_lists(student, name, 0, 2, 4)


def alternating(stage, stages, micro):
    """The order of a stage in 1F1B."""
    forwards, order = iter(range(micro)), []
    for i in range(micro):
        ahead = stages - stage if i == 0 else 1
        order += [("F", j) for j in itertools.islice(forwards, ahead)] + [("B", i)]
    return order


def by_rounds(orders, f, b):
    """Start times by relaxation: everything begins at 0 and is pushed back until all fits."""
    length = {"F": f, "B": b}
    begin = {(s, *piece): 0.0 for s, order in enumerate(orders) for piece in order}
    needs = {}
    for s, order in enumerate(orders):
        for j, (kind, i) in enumerate(order):
            own = [(s, *order[j - 1])] if j else []
            if kind == "F":
                own += [(s - 1, "F", i)] if s else []
            else:
                own += [(s + 1, "B", i)] if s + 1 < len(orders) else [(s, "F", i)]
            needs[s, kind, i] = own
    for _ in range(len(begin) + 1):
        for key, own in needs.items():
            if own:
                begin[key] = max(begin[n] + length[n[1]] for n in own)
    return [[begin[s, *piece] for piece in order] for s, order in enumerate(orders)]


@exercise(
    "ex5",
    points=3,
    invariant="start times of any orders, with unlike times, without backwards, with nothing",
    cause="stages looked at once, times of one kind for both, or a wait for ever that does not end",
)
def test_times_of_any_orders(student, rng):
    for stages, micro in ((1, 3), (2, 2), (4, 6), (6, 3), (3, 9)):
        f, b = integer(rng, 1, 8) / 4, integer(rng, 1, 8) / 2
        mixed, ahead = [], 0
        for _ in range(stages):  # from the last: warm-ups of other lengths that still go on
            ahead = min(micro, max(1, ahead + integer(rng, 0, 2)))
            order = [("F", i) for i in range(ahead)]
            for i in range(micro):
                order += [("B", i), *([("F", ahead + i)] if ahead + i < micro else [])]
            mixed.insert(0, order)
        plain = [[("F", i) for i in range(micro)] for _ in range(stages)]
        # later stages have fewer micro-batches, every stage another order, the first a falling one
        fewer = [[("F", i) for i in reversed(range(micro))]]
        for s in range(1, stages):
            some = fewer[-1][: max(1, micro - s)]
            fewer.append([some[j] for j in torch.randperm(len(some), generator=rng).tolist()])
        for orders in (mixed, plain, fewer, [[] for _ in range(stages)]):
            seen = times_of(student.start_times(orders, f, b), orders, "start_times")
            assert seen == by_rounds(orders, f, b), (
                "start_times of an order that was drawn are others"
            )
    for stages, micro in ((2, 20), (4, 9), (2, 90)):  # forth and back many times; unlike times
        orders = [alternating(s, stages, micro) for s in range(stages)]
        for f, b in ((2, 3), (3.0, 2.0), (0.75, 0.5)):
            seen = times_of(student.start_times(orders, f, b), orders, "start_times")
            what = f"start_times of 1F1B with {stages} stages, {f} and {b}"
            assert seen == by_rounds(orders, f, b), f"{what} are others"
    orders = [[(k, i) for i in range(8) for k in "FB"]] * 8  # no forward runs ahead
    for made in (orders, [[(k, i) for k in "FB" for i in range(5)]] * 3):
        seen = times_of(student.drive(drive_shared, made[0], len(made)), made, "start_times")
        assert seen == by_rounds(made, 1.0, 2.0), "start_times of stages with one order are others"
    for f, b in ((0.1, 0.2), (1 / 3, 0.7)):  # no float holds sums of them: but for roundings
        orders = [alternating(s, 3, 7) for s in range(3)]
        seen = times_of(student.start_times(orders, f, b), orders, "start_times")
        for row, right in zip(seen, by_rounds(orders, f, b), strict=True):
            row, right = (torch.tensor(times, dtype=F64) for times in (row, right))
            expect_close(row, right, what=f"start_times with {f} and {b}", atol=1e-12)
    for times in (2.0**-30, 2.0**30):  # of devices that are quick, and of slow ones; all exact
        orders = [alternating(s, 4, 9) for s in range(4)]
        seen = times_of(student.start_times(orders, 3 * times, 5 * times), orders, "start_times")
        what = f"start_times of 1F1B with {3 * times} and {5 * times}"
        assert seen == by_rounds(orders, 3 * times, 5 * times), f"{what} are others"
    for orders in (
        [[("F", 0), ("B", 1)], [("F", 0), ("B", 0)]],
        [[], [("F", 0)]],
        [[("F", 0)], [], [("F", 0)]],
        [[("F", 0), ("B", 0)], []],
        [[("B", 0), ("F", 0)], [("F", 0), ("B", 0)]],
        [[("F", 0)], [("F", 1)], []],
    ):
        expect_error(
            ValueError, lambda o=orders: student.start_times(o, 1.0, 2.0), "a wait for ever"
        )


@exercise(
    "ex5",
    points=3,
    invariant="the bubble is what is counted; activations of any order",
    cause="a formula of another schedule, or activations at the end in place of the most",
)
def test_bubbles_and_memory(student, rng):
    for stages, micro in ((1, 1), (2, 3), (5, 2), (8, 100), (3, 7), (12, 1)):
        orders = [[(k, i) for k in "FB" for i in range(micro)]] * stages
        f, b = integer(rng, 1, 5), integer(rng, 1, 5)
        end = max(row[-1] for row in by_rounds(orders, f, b)) + b if micro < 20 else None
        right = (stages - 1) / (micro + stages - 1)
        assert end is None or abs(1 - micro * (f + b) / end - right) < 1e-9
        seen = real(student.bubble(stages, micro), "bubble")
        expect_close(seen, right, what=f"bubble({stages}, {micro})", atol=1e-12)
    for turn in range(10):
        order, held, most, next_, open_ = [], 0, 0, 0, []
        for _ in range(integer(rng, 30, 40) * (1 + 4 * turn)):
            if open_ and integer(rng, 0, 1):
                order.append(("B", open_.pop(integer(rng, 0, len(open_) - 1))))
                held -= 1
            else:
                order.append(("F", next_))
                open_.append(next_)
                next_, held = next_ + 1, held + 1
            most = max(most, held)
        assert whole(student.live(order), "live") == most, (
            "live of an order that was drawn is another"
        )


# ---- exercise 6 ------------------------------------------------------------------------------


def loss_of(line, n, t):
    return ((line[0] + line[1] * n - t) / t).square().sum().item()


def best_pairs(n, t):
    """Allowed pairs, among them the best: with alpha alone, with beta alone, and with both."""
    columns = torch.stack([1 / t, n / t], 1)
    alone = [columns[:, i].sum() / columns[:, i].square().sum() for i in (0, 1)]
    large = columns.amax(0)
    ones = torch.ones(len(n), 1, dtype=F64)
    both = torch.linalg.lstsq(columns / large, ones).solution[:, 0] / large
    pairs = [(alone[0].item(), 0.0), (0.0, alone[1].item())]
    return pairs + ([tuple(both.tolist())] if both.min() >= 0 else [])


@exercise(
    "ex6",
    points=3,
    invariant="no allowed pair has a smaller sum of squared relative errors",
    cause="errors that are not relative, negative numbers cut off at 0 and the other one "
    "left as it was",
)
def test_fits_of_noise(student, rng):
    cases = []
    for alpha, beta in ((2e-5, 1e-9), (1e-6, 1e-10), (1e-8, 2e-7), (3e-3, 1e-13)):
        n = torch.tensor([4, 100, 5000, 200_000, 3_000_000])
        noise = 1 + 0.2 * torch.randn(5, generator=rng, dtype=F64).clamp(-2, 2)
        cases.append((n, (alpha + beta * n.double()) * noise))
    n = torch.tensor([0, 4, 100, 5000, 200_000, 3_000_000])
    noise = torch.tensor([1.5, 0.8, 0.9, 1.1, 1.0, 0.95], dtype=F64)
    cases += [(n, (2e-5 + 1e-9 * n.double()) * noise)]  # what is sent may be empty
    n = torch.tensor([1, 10, 1000])
    cases += [(n, torch.tensor([1e-9, 1e-7, 3e-5], dtype=F64))]  # alpha would be negative
    cases += [(n, torch.tensor([3e-6, 2e-6, 1e-6], dtype=F64))]  # beta would be negative
    cases += [(torch.tensor([0, 8]), torch.tensor([1e-8, 2e-8], dtype=F64))]
    cases += [(torch.tensor([1, 3]), torch.tensor([5e3, 1e4], dtype=F64))]  # a slow network
    n = torch.randint(1, 10**6, (60,), generator=rng)  # many, in no order
    noise = 1 + 0.2 * torch.randn(60, generator=rng, dtype=F64).clamp(-2, 2)
    cases += [
        (n, (alpha + beta * n.double()) * noise) for alpha, beta in ((2e-5, 1e-9), (1e-10, 1e-16))
    ]
    n, noise = torch.tensor([4, 4, 5000, 4, 5000]), torch.tensor([1.1, 0.8, 1.0, 0.9, 1.2])
    cases += [(n, (2e-5 + 1e-9 * n.double()) * noise)]  # measured several times
    n = torch.tensor([4, 10**6, 4 * 10**9, 10**11])
    cases += [(n, (1e-5 + 1e-10 * n.double()) * torch.tensor([1.1, 0.9, 1.2, 0.8]))]
    for sizes, seconds in (  # a pair with a 0, and other measures of "less" choose the other pair
        ([6, 0, 3], [8, 14, 4]),
        ([13, 6, 8], [18, 1, 1]),
        ([1, 13, 5], [5, 19, 2]),
        ([16, 2, 7], [7, 19, 2]),
    ):
        cases += [(torch.tensor(sizes), torch.tensor(seconds, dtype=F64))]
    for n, t in cases:
        line = pair(student.fit(n, t), "fit")
        assert min(line) >= 0, f"fit gave a number below 0: {line}"
        best = loss_of(line, n.double(), t)
        for other in best_pairs(n.double(), t):
            most = loss_of(other, n.double(), t) * (1 + 1e-9) + 1e-18
            expect_at_most(best, most, "the squares of fit's line")
        for a in (0.0, line[0] * 0.99, line[0], line[0] * 1.01, t.min().item()):
            for b in (
                0.0,
                line[1] * 0.99,
                line[1],
                line[1] * 1.01,
                (t / n.clamp(min=1)).min().item(),
            ):
                other = loss_of((a, b), n.double(), t)
                expect_at_most(best, other * (1 + 1e-9) + 1e-18, "the squares of fit's line")


def drawn_job(rng):
    """A job of whole numbers and powers of two."""
    job = {"layers": integer(rng, 1, 80), "weights": integer(rng, 10**6, 10**11)}
    job |= {"cache": integer(rng, 0, 10**8), "flops": integer(rng, 10**6, 10**11)}
    job |= {"row": 2 ** integer(rng, 6, 14), "bandwidth": 10.0 ** integer(rng, 10, 13)}
    job |= {"peak": 10.0 ** integer(rng, 11, 15), "alpha": 10.0 ** integer(rng, -6, -4)}
    return job | {"beta": 10.0 ** integer(rng, -12, -9)}


def ways(job, batch, size):
    """{(plan, micro): seconds} by simulation: stages serve micro-batches one after the other."""

    def work(rows):
        reading = (job["weights"] + rows * job["cache"]) / job["bandwidth"]
        return max(reading, rows * job["flops"] / job["peak"]) / size

    one = sum(job["alpha"] + job["beta"] * batch * job["row"] / size for _ in range(2 * (size - 1)))
    found = {("tensor", 1): work(batch) + 2 * job["layers"] * one}
    for micro in range(1, batch + 1):
        if batch % micro:
            continue
        rows = batch // micro
        message = job["alpha"] + job["beta"] * rows * job["row"] if size > 1 else 0.0
        found["pipeline", micro] = turns(size, micro) * (work(rows) + message)
    return found


def turns(size, micro, rounds=6):
    """How many stage times pass between two tokens of a sequence, once the pipeline is full."""
    free, done = [0] * size, [0] * micro
    last = 0
    for _ in range(rounds):
        for i in range(micro):
            for s in range(size):
                done[i] = free[s] = max(done[i], free[s]) + 1
        last, before = done[0], last
    return last - before


@exercise(
    "ex6",
    points=3,
    invariant="steps of both plans for jobs that were drawn, against a simulation",
    cause="the longer of reading and computing taken wrongly, the cache, or a pipeline that "
    "runs empty",
)
def test_steps_of_any_job(student, rng):
    for size, batch in ((1, 1), (2, 6), (4, 8), (8, 64), (3, 16), (16, 12), (2, 300)):
        for _ in range(3):
            job = drawn_job(rng)
            for (plan, micro), right in ways(job, batch, size).items():
                if plan == "tensor":
                    seen, call = student.tensor_step(job, batch, size), "tensor_step"
                else:
                    seen, call = student.pipeline_step(job, batch, size, micro), "pipeline_step"
                call = f"{call} of a job with batch {batch}, {size} devices, {micro} micro-batches"
                expect_close(real(seen, call), right, what=call, rtol=1e-9)
            n = integer(rng, 1, 10**7)
            one = 2 * (size - 1) * (job["alpha"] + job["beta"] * n / size)
            seen = student.all_reduce_seconds(n, size, job["alpha"], job["beta"])
            expect_close(
                real(seen, "all_reduce_seconds"), one, what="all_reduce_seconds", rtol=1e-9
            )
    # what decides between reading and computing: with caches, with weights alone it would be other
    job = {"layers": 2, "weights": 100, "cache": 100, "flops": 60, "row": 8, "bandwidth": 100}
    job |= {"peak": 50, "alpha": 0.5, "beta": 0.25}
    for cache, batch, size in ((100, 4, 1), (100, 8, 2), (30, 8, 2), (1000, 6, 3)):
        job |= {"cache": cache}
        for (plan, micro), right in ways(job, batch, size).items():
            if plan == "tensor":
                seen = student.tensor_step(job, batch, size)
            else:
                seen = student.pipeline_step(job, batch, size, micro)
            call = f"{plan}_step of a job with much cache"
            expect_close(real(seen, call), right, what=call, rtol=1e-9)
    for batch, micro, size in itertools.product((4, 5), (8, 3, 0, -1, -2), (1, 2, 8)):
        expect_error(
            ValueError,
            lambda b=batch, m=micro, p=size: student.pipeline_step(drawn_job(rng), b, p, m),
            f"{batch} sequences in {micro} micro-batches, {size} devices",
        )


@exercise(
    "ex6",
    points=3,
    invariant="the fastest of all plans; of equal ones tensor, then the fewest micro-batches",
    cause="micro equal to p only, micro that does not divide, or the last of equal ones",
)
def test_plans_of_any_job(student, rng):
    for size, batch in ((1, 5), (2, 1), (3, 18), (4, 64), (6, 36), (8, 8), (3, 300)):
        for _ in range(4):
            job = drawn_job(rng)
            right = ways(job, batch, size)
            what = f"better_plan with batch {batch} on {size} devices"
            seen = student.better_plan(job, batch, size)
            assert isinstance(seen, tuple) and len(seen) == 3, f"{what} returned no tuple of three"
            plan, micro = seen[0], whole(seen[1], f"the micro of {what}")
            assert (plan, micro) in right, f"{what} is none of the plans"
            expect_close(
                real(seen[2], what), right[plan, micro], what=f"seconds of {what}", rtol=1e-9
            )
            expect_at_most(
                right[plan, micro], min(right.values()) * (1 + 1e-9), f"seconds of {what}"
            )
    odd = {"layers": 2, "weights": 800, "cache": 100, "flops": 40, "row": 8, "bandwidth": 100}
    odd |= {"peak": 50, "alpha": 100.0, "beta": 0.25}
    seen = tuple(student.better_plan(odd, 9, 3))
    assert seen[:2] == ("pipeline", 3), f"the plan of 9 sequences on 3 devices is {seen}"
    # computing decides, and 3 divides no 4: of 3 turns of 20, and 4 of 10, the second
    slow = odd | {"weights": 1, "cache": 0, "flops": 30, "peak": 1, "alpha": 1.0, "beta": 0.0}
    seen = tuple(student.better_plan(slow | {"layers": 80}, 4, 3))
    assert seen[:2] == ("pipeline", 4), f"the plan of 4 sequences on 3 devices is {seen}"
    # the same job on devices and a network 1e8 times as fast
    fast = {key: odd[key] / 1e8 for key in ("alpha", "beta")}
    fast |= {key: odd[key] * 1e8 for key in ("bandwidth", "peak")}
    seen = tuple(student.better_plan(odd | fast, 9, 3))
    assert seen[:2] == ("pipeline", 3), f"the plan of a job of microseconds is {seen}"
    many = slow | {"layers": 80, "alpha": 0.01}  # as many micro-batches as there are sequences
    for batch in (128, 131):
        seen = tuple(student.better_plan(many, batch, 100))
        assert seen[:2] == ("pipeline", batch), f"the plan of {batch} sequences is {seen}"
    seen = tuple(student.better_plan(many, 131, 4))
    assert seen[:2] == ("pipeline", 131), f"the plan of 131 sequences on 4 devices is {seen}"
    # powers of two: exact in any order of operations
    even = slow | {"layers": 80, "flops": 32, "bandwidth": 1, "alpha": 0, "beta": 1}
    seen = tuple(student.better_plan(even, 8, 4))
    assert seen == ("pipeline", 4, 128), f"a tie of 4 and 8 micro-batches: {seen}"
    job = {"layers": 1, "weights": 64, "cache": 0, "flops": 1, "row": 1, "bandwidth": 1}
    job |= {"peak": 1024.0, "alpha": 0, "beta": 0}
    assert tuple(student.better_plan(job, 8, 1)) == ("tensor", 1, 64), (
        "a tie of tensor and pipeline"
    )
    seen = tuple(student.better_plan(job | {"alpha": 16}, 1, 2))
    assert seen == ("tensor", 1, 96), f"a tie of tensor and pipeline on two devices: {seen}"
    slow = job | {"alpha": 64}
    seen = tuple(student.better_plan(slow, 8, 4))  # every micro up to 4 takes 4 (16 + 64)
    assert seen == ("pipeline", 1, 320), "a tie of 1, 2 and 4 micro-batches"
    near = slow | {"cache": 2.0**-30}  # as fast but for a few bits: still exact in any order
    seen = tuple(student.better_plan(near, 8, 4))
    assert seen[:2] == ("pipeline", 4), f"4 micro-batches are the faster by 6 / 2^30 s, not {seen}"
