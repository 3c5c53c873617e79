"""Public tests of lab12: what lab.check runs.  Numbers to check by hand, properties, brute force.

The brute force goes head by head in float64.  Where it chooses, inputs are drawn until nothing is
nearly equal: float32 chooses the same.
"""

import math
from functools import partial

import torch

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_error,
    expect_same,
    expect_tensor,
    expect_tuple,
)

F32, F64, I64 = torch.float32, torch.float64, torch.int64
CLOSE = 2e-5  # of float32: products of some tens of terms, and a softmax


def tensor(values, dtype=F64):
    return torch.tensor(values, dtype=dtype)


def draw(rng, *shape, dtype=F64):
    return torch.randn(*shape, generator=rng, dtype=F64).to(dtype)


def exact(q, k, v):
    """(out, p) in float64, head by head and query by query."""
    q, k, v = (x.double() for x in (q, k, v))
    (B, H, T, d), S = q.shape, k.shape[2]
    p, out = torch.zeros(B, H, T, S, dtype=F64), torch.zeros(B, H, T, v.shape[3], dtype=F64)
    for b in range(B):
        for h in range(H):
            g = h // (H // k.shape[1])
            for t in range(T):
                seen = S - T + t + 1
                row = (k[b, g, :seen] @ q[b, h, t] / math.sqrt(d)).softmax(0)
                p[b, h, t, :seen] = row
                out[b, h, t] = row @ v[b, g, :seen]
    return out, p


def stay(scores, positions, size, sinks, recent):
    """(places of one row that stay, how far the choice is from a tie)."""
    n = len(scores)
    guarded = [i for i in range(n) if positions[i] < sinks or i >= n - recent]
    others = sorted((i for i in range(n) if i not in guarded), key=lambda i: (-scores[i], -i))
    room = size - len(guarded)
    chosen, left = others[:room], others[room:]
    clear = scores[chosen[-1]] - scores[left[0]] if chosen and left else math.inf
    return sorted(guarded + chosen), clear


def simulated(steps, size, sinks=0, recent=0, decay=1.0):
    """What a cache does with steps (q, k, v): after each (out, positions, mass, keys, values)."""
    B, heads = steps[0][1].shape[:2]
    clear, seen = math.inf, 0
    kept = {(b, g): ([], []) for b in range(B) for g in range(heads)}  # positions, mass
    all_k = torch.cat([k for _, k, _ in steps], 2)
    all_v = torch.cat([v for _, _, v in steps], 2)
    told = []
    for q, k, _ in steps:
        T, group = k.shape[2], q.shape[1] // heads
        outs = torch.zeros(*q.shape[:3], all_v.shape[3], dtype=F64)
        for (b, g), (at, mass) in kept.items():
            at = at + list(range(seen, seen + T))
            mine = slice(g * group, (g + 1) * group)
            rows = all_k[b, g, at][None, None], all_v[b, g, at][None, None]
            out, p = exact(q[b : b + 1, mine], *rows)
            outs[b, mine] = out[0]
            weights = [decay ** (T - 1 - t) if t < T - 1 else 1.0 for t in range(T)]
            got = (p[0] * tensor(weights)[:, None]).sum((0, 1))
            old = tensor([*mass, *[0.0] * T])
            mass = old * decay**T + got
            places, far = stay(mass.tolist(), at, size, sinks, recent)
            clear = min(clear, far)
            kept[b, g] = [at[i] for i in places], mass[places].tolist()
        seen += T
        table = [[kept[b, g][0] for g in range(heads)] for b in range(B)]
        masses = [[kept[b, g][1] for g in range(heads)] for b in range(B)]
        at = torch.tensor(table)
        rows = at[..., None].expand(-1, -1, -1, all_k.shape[3])
        told.append((outs, at, tensor(masses), all_k.gather(2, rows), all_v.gather(2, rows)))
    return told, clear


def clear_case(make, least=1e-3):
    """The first drawn case whose choices nothing but a real mistake changes."""
    for _ in range(300):
        case, far = make()
        if far > least:
            return case
    raise RuntimeError("no case without a tie was drawn")


def drive_kept(student, steps, options):
    """Runs beside the student's code: what the cache gives and is after each step."""
    cache, told = student.KeptTokens(**options), []
    for q, k, v in steps:
        out = cache.step(q, k, v)
        now = (out, cache.positions, cache.mass, cache.keys, cache.values)
        told.append([x.clone() for x in now])
    return told


def expect_steps(student, steps, options, right, atol=1e-9):
    seen = student.drive(drive_kept, steps, options)
    names = ("out", "positions", "mass", "keys", "values")
    for i, (now, then) in enumerate(zip(seen, right, strict=True)):
        for name, x, y in zip(names, now, then, strict=True):
            what = f"{name} after step {i} of KeptTokens({options})"
            if name == "positions":
                expect_same(x, y, what)
            else:
                expect_close(x, y, what=what, atol=atol)


# ---- exercise 1: what a token has got, and who stays ----------------------------------------


@exercise(
    "ex1",
    points=2,
    invariant="the queries are the last T of S tokens, and query head h reads key head h // group",
    cause="a mask that is right for T = S only, repeat for repeat_interleave, or no sqrt(d)",
)
def test_attend(student, rng):
    for B, H, heads, T, S, d in ((1, 1, 1, 3, 3, 2), (2, 4, 2, 2, 5, 8), (1, 6, 2, 1, 4, 4)):
        q = draw(rng, B, H, T, d, dtype=F32)
        k, v = (draw(rng, B, heads, S, d, dtype=F32) for _ in range(2))
        value = student.attend(q, k, v)
        out, p = expect_tuple(value, (torch.Tensor, torch.Tensor), "attend")
        right_out, right_p = exact(q, k, v)
        expect_tensor(p, "p", F32, (B, H, T, S))
        expect_close(p, right_p, what="p", atol=CLOSE)
        expect_tensor(out, "out", F32, (B, H, T, d))
        expect_close(out, right_out, what="out", atol=CLOSE)


@exercise(
    "ex1",
    points=2,
    invariant="mass is added up over queries and the query heads of a key head; n queries before "
    "the last count decay^n, the last counts whole",
    cause="a mean, rows for columns, heads h % Hkv, the first query whole, or 0^0 = 0",
)
def test_mass(student, rng):
    p = tensor([[[[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]]]])
    for decay, right in (
        (1.0, [1.75, 0.75, 0.5]),
        (0.0, [0.25, 0.25, 0.5]),
        (0.5, [0.75, 0.5, 0.5]),
    ):
        mass = student.mass_of(p, 1, decay)
        expect_tensor(mass, f"mass_of(p, 1, {decay})", F64, (1, 1, 3))
        expect_close(mass, tensor([[right]]), what=f"mass with decay {decay}", atol=1e-12)
    p = draw(rng, 2, 4, 3, 5).softmax(-1)
    right = torch.stack([p[:, :2].sum((1, 2)), p[:, 2:].sum((1, 2))], 1)
    expect_close(student.mass_of(p, 2), right, what="mass of two key heads", atol=1e-12)


@exercise(
    "ex1",
    points=2,
    invariant="guarded tokens first, then the largest scores, of equal ones the later; ascending",
    cause="[-0:], places by score, sinks by place, the earlier of equal ones, or no check",
)
def test_survivors(student, rng):
    score, at = tensor([[[5.0, 1, 1, 3]]]), torch.tensor([[[0, 1, 7, 9]]])
    for size, sinks, recent, right in (
        (2, 0, 0, [0, 3]),
        (2, 0, 1, [0, 3]),
        (2, 2, 0, [0, 1]),
        (3, 0, 0, [0, 2, 3]),
        (2, 0, 2, [2, 3]),
        (1, 0, 0, [0]),
        (9, 1, 8, [0, 1, 2, 3]),
    ):
        what = f"survivors(.., size={size}, sinks={sinks}, recent={recent})"
        expect_same(
            student.survivors(score, at, size, sinks, recent), torch.tensor([[right]]), what
        )
    late = torch.tensor([[[1, 5, 7, 9]]])
    expect_same(
        student.survivors(score, late, 2, 2, 0), torch.tensor([[[0, 3]]]), "one sink is left"
    )
    two = torch.cat([score, -score], 1)
    places = student.survivors(two, at.expand(1, 2, 4), 2, 0, 0)
    expect_same(places, torch.tensor([[[0, 3], [1, 2]]]), "survivors of two heads")
    for size, sinks, recent in ((0, 0, 0), (3, 2, 2), (3, -1, 0), (3, 0, -1)):
        given = (size, sinks, recent)
        expect_error(ValueError, lambda g=given: student.survivors(score, at, *g), f"{given}")


# ---- exercise 2: a cache that drops --------------------------------------------------------


def pair(rng, *shape, dtype):
    """Keys and values."""
    return [draw(rng, *shape, dtype=dtype) for _ in range(2)]


def tokens(rng, sizes, B=1, H=1, heads=1, d=4, dtype=F64):
    """Steps (q, k, v) of so many tokens each."""
    return [
        (2 * draw(rng, B, H, T, d, dtype=dtype), *pair(rng, B, heads, T, d, dtype=dtype))
        for T in sizes
    ]  # fmt: skip


@exercise(
    "ex2",
    points=3,
    invariant="after each step who is there, what they have got, and what the queries saw",
    cause="dropping before the queries have looked, places for positions, or mass not carried over",
)
def test_kept_tokens(student, rng):
    for options in (
        {"size": 3, "recent": 1},
        {"size": 4, "sinks": 2, "recent": 1},
        {"size": 3, "decay": 0.0},
        {"size": 3, "decay": 0.5},
    ):

        def make(options=options):
            steps = tokens(rng, [1] * 8, B=2, H=4, heads=2)
            told, clear = simulated(steps, **options)
            return (steps, told), clear

        steps, right = clear_case(make)
        expect_steps(student, steps, options, right)


@exercise(
    "ex2",
    points=2,
    invariant="with recent = size it is a window; with room for all it is attention as it was",
    cause="an empty cache that is not one, or tokens that leave while there is room",
)
def test_window_and_everything(student, rng):
    steps = tokens(rng, [1] * 6)
    seen = student.drive(drive_kept, steps, {"size": 2, "recent": 2})
    for i, now in enumerate(seen):
        window = torch.arange(max(0, i - 1), i + 1)[None, None]
        expect_same(now[1], window, f"positions after token {i} in a window of 2")
    steps = tokens(rng, [3, 1, 2])
    seen = student.drive(drive_kept, steps, {"size": 6})
    out = torch.cat([now[0] for now in seen], 2)
    whole = [torch.cat(parts, 2) for parts in zip(*steps, strict=True)]
    right, p = exact(*whole)
    expect_close(out, right, what="out with room for all", atol=1e-9)
    expect_close(seen[-1][2], p.sum(2), what="mass with room for all", atol=1e-9)


@exercise(
    "ex2",
    points=1,
    invariant="ValueError at once for sizes that do not fit and a decay outside of 0 to 1",
    cause="errors that come with the first step, or none for the decay",
)
def test_wrong_options(student, rng):
    for options in ({"size": 0}, {"size": 2, "sinks": 2, "recent": 1}, {"size": 2, "decay": 1.5}):
        call = partial(student.drive, drive_kept, [], options)
        expect_error(ValueError, call, f"KeptTokens({options})")
    steps = tokens(rng, [1])
    (now,) = student.drive(drive_kept, steps, {"size": 1})
    expect_same(now[1], torch.tensor([[[0]]]), "positions after one token")
    expect_close(now[0], exact(*steps[0])[0], what="out of one token", atol=1e-9)


# ---- exercise 3: numbers, pairs, an oracle -------------------------------------------------


@exercise(
    "ex3",
    points=2,
    invariant="10 tokens of dim 2: everything 40, 40; size 4: 20, 25; two pages of 4: 52, 36",
    cause="no mass, the query's own token forgotten, a newest page taken for full, or one summary",
)
def test_numbers(student, rng):
    for given, right in (
        ({}, (40, 40)),
        ({"size": 4}, (20, 25)),
        ({"size": 20}, (50, 50)),
        ({"page": 4, "pages": 2}, (52, 36)),
        ({"page": 4, "pages": 9}, (52, 52)),
    ):
        value = student.numbers(10, 2, **given)
        value = expect_tuple(value, (int, int), "numbers")
        assert tuple(value) == right, f"numbers(10, 2, {given}) is {value}, expected {right}"
    for given in ({"page": 4}, {"pages": 4}, {"size": 2, "page": 4, "pages": 1}, {"size": 0}):
        expect_error(ValueError, lambda g=given: student.numbers(10, 2, **g), f"numbers({given})")


@exercise(
    "ex3",
    points=2,
    invariant="texts are what is counted: the mean of their differences, and its error with N - 1",
    cause="tokens for texts, N for N - 1, a difference the other way round, or no root of N",
)
def test_paired(student, rng):
    a, b = tensor([[1, 3], [2, 4.0], [3, 5]]), tensor([[0, 2], [2, 2], [1, 3]])
    value = student.paired(a, b)
    difference, error, apart = expect_tuple(value, (float,) * 3, "paired")
    expect_close(difference, 4 / 3, what="difference", rtol=1e-12)
    expect_close(error, (1 / 9) ** 0.5, what="error", rtol=1e-9)  # of 1, 1, 2
    expect_close(apart, 2 / 3, what="unpaired", rtol=1e-9)
    expect_error(ValueError, lambda: student.paired(a[:1], b[:1]), "one text")
    expect_error(ValueError, lambda: student.paired(a, b[:2]), "unlike texts")


@exercise(
    "ex3",
    points=2,
    invariant="the future of t begins at t + 1 and ends at t + horizon; best_mass is a top-k sum",
    cause="row t counted, one row too few, keys that are not there yet, or heads not added up",
)
def test_future_and_best(student, rng):
    p = tensor([[[[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]]]])
    for horizon, right in (
        (None, [[0.75, 0, 0], [0.25, 0.25, 0], [0, 0, 0]]),
        (1, [[0.5, 0, 0], [0.25, 0.25, 0], [0, 0, 0]]),
        (0, [[0, 0, 0]] * 3),
    ):
        future = student.future_mass(p, 1, horizon)
        expect_tensor(future, "future_mass", F64, (1, 1, 3, 3))
        expect_close(future, tensor([[right]]), what=f"future, horizon {horizon}", atol=1e-12)
    two = torch.cat([p, p], 1)
    expect_close(
        student.future_mass(two, 1), 2 * student.future_mass(p, 1), what="of two heads", atol=1e-12
    )
    expect_close(
        student.future_mass(two, 2)[:, 1:],
        student.future_mass(p, 1),
        what="of each head",
        atol=1e-12,
    )
    for size, right in ((1, [1, 0.5, 0.5]), (2, [1, 1, 0.75]), (7, [1, 1, 1])):
        expect_close(student.best_mass(p, size), tensor([[right]]), what=f"best {size}", atol=1e-12)


# ---- exercise 4: pages by a bound ----------------------------------------------------------


@exercise(
    "ex4",
    points=2,
    invariant="keys (1, 4), (3, 2): box (1, 2), (3, 4); for (1, -1) the bound is 1 / sqrt(2)",
    cause="q @ high, the larger of two sums, no sqrt(d), or zeros in a last page",
)
def test_boxes_and_bounds(student, rng):
    k = tensor([[[[1, 4], [3, 2], [-1, -5]]]])
    low, high = expect_tuple(student.page_boxes(k, 2), (torch.Tensor,) * 2, "page_boxes")
    expect_same(low, tensor([[[[1, 2], [-1, -5]]]]), "low")
    expect_same(high, tensor([[[[3, 4], [-1, -5]]]]), "high")
    q = tensor([[[[1, -1], [1, 1], [-2, 0]]]])
    right = tensor([[[[1, 4], [7, -6], [-2, 2]]]]) / 2**0.5
    expect_close(student.page_bounds(q, low, high), right, what="u", atol=1e-12)
    q, k = draw(rng, 2, 4, 3, 8), draw(rng, 2, 2, 11, 8)
    u = student.page_bounds(q, *student.page_boxes(k, 4))
    expect_tensor(u, "u", F64, (2, 4, 3, 3))
    products = q @ k.repeat_interleave(2, 1).transpose(-1, -2) / 8**0.5
    most = torch.stack([x.amax(-1) for x in products.split(4, -1)], -1)
    expect_at_most(most, u + 1e-9, "a product above the bound of its page")


@exercise(
    "ex4",
    points=2,
    invariant="the newest page and the largest bounds, `pages` in all; nothing behind the newest",
    cause="the newest page besides, pages of the future, or the earlier of equal ones",
)
def test_chosen(student, rng):
    u = tensor([[[[3.0, 1, 1, 9], [3, 1, 1, 9], [3, 1, 1, 9]]]])
    newest = torch.tensor([0, 3, 2])
    for pages, right in (
        (1, [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]),
        (2, [[1, 0, 0, 0], [1, 0, 0, 1], [1, 0, 1, 0]]),
        (3, [[1, 0, 0, 0], [1, 0, 1, 1], [1, 1, 1, 0]]),
        (8, [[1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0]]),
    ):
        chosen = student.chosen_pages(u, pages, newest)
        expect_same(chosen, torch.tensor([[right]]) > 0, f"chosen_pages(u, {pages}, newest)")


def counted(k, page):
    """(read, list of what was read): the pages of k [S, d]."""
    asked, parts = [], k.split(page)

    def read(i):
        asked.append(int(i))
        return parts[int(i)].clone()

    return read, asked


def expect_largest(student, q, k, page):
    """find_largest finds it, the first of equal ones, and reads no page that bounds exclude."""
    read, asked = counted(k, page)
    parts = k.split(page)
    low, high = (torch.stack([f(x, 0) for x in parts]) for f in (torch.amin, torch.amax))
    value = student.find_largest(q, low, high, page, read)
    index, n = expect_tuple(value, (int, int), "find_largest")
    products = (k.double() @ q.double()).tolist()
    top = max(products)
    right = products.index(top)
    assert index == right, f"key {index} was found, the largest product is that of key {right}"
    assert n == len(asked), f"{n} pages are said to be read, read() was called {len(asked)} times"
    assert len(set(asked)) == n, f"a page was read twice: {asked}"
    q, low, high = q.double(), low.double(), high.double()
    u = torch.maximum(q * low, q * high).sum(-1).tolist()
    excluded = [i for i in asked if u[i] < top]
    assert not excluded, f"pages {excluded} were read, whose bounds are below the largest product"


@exercise(
    "ex4",
    points=2,
    invariant="the key with the largest product, for certain, from the pages that might hold it",
    cause="stopping at the first page, reading all, or the index within a page",
)
def test_find_largest(student, rng):
    k = tensor([[1, 4], [3, 2], [4, 0], [2, 2], [0, 6]])
    expect_largest(student, tensor([1, 0.0]), k, 2)  # pages (3), (4), (0): the second alone
    expect_largest(student, tensor([1, 1.0]), k, 2)  # bounds 7, 6, 6: all, and key 4
    k = tensor([[1, 1], [1, 1], [2, 0], [0, 2]])  # bounds 2, 4, all products 2: key 0 is the first
    expect_largest(student, tensor([1, 1.0]), k, 2)
    for _ in range(5):
        q, k = (torch.randint(-8, 9, s, generator=rng).double() / 8 for s in ((4,), (19, 4)))
        expect_largest(student, q, k, 3)


# ---- exercise 5: a cascade -----------------------------------------------------------------


@exercise(
    "ex5",
    points=2,
    invariant="columns of alive queries add up over layers; who is gone stays gone",
    cause="rows for columns, queries that are gone, a score replaced, or a token that returns",
)
def test_cascade_tokens(student, rng):
    p = tensor([[[[1, 0, 0], [0.5, 0.5, 0], [0.25, 0, 0.75]]]])
    zero, all_alive = torch.zeros(1, 3, dtype=F64), torch.ones(1, 3) > 0
    value = student.cascade_tokens(p, zero, all_alive, 2)
    score, alive = expect_tuple(value, (torch.Tensor,) * 2, "cascade_tokens")
    expect_close(score, tensor([[1.75, 0.5, 0.75]]), what="score", atol=1e-12)
    expect_same(alive, torch.tensor([[True, False, True]]), "alive")
    p = tensor([[[[1, 0, 0], [1, 0, 0], [0.5, 0, 0.5]]]])
    score, alive = student.cascade_tokens(p, score, alive, 2)
    expect_close(score, tensor([[3.25, 0.5, 1.25]]), what="score of the next layer", atol=1e-12)
    expect_same(alive, torch.tensor([[True, False, True]]), "alive in the next layer")
    score, alive = student.cascade_tokens(p, tensor([[1.0, 9, 1]]), alive, 1)
    expect_same(alive, torch.tensor([[True, False, False]]), "alive at the end")


@exercise(
    "ex5",
    points=2,
    invariant="a head's importance is the sum of |out|, added up over layers",
    cause="signs that cancel, or heads that are gone and return",
)
def test_cascade_heads(student, rng):
    out = tensor([[[[1, -1]], [[0.5, 0.5]], [[3, -2]]]])
    start = tensor([[0.0, 1, 7]])
    value = student.cascade_heads(out, start, torch.tensor([[True, True, False]]), 1)
    score, alive = expect_tuple(value, (torch.Tensor,) * 2, "cascade_heads")
    expect_close(score, tensor([[2.0, 2, 7]]), what="score of heads", atol=1e-12)
    expect_same(alive, torch.tensor([[False, True, False]]), "alive heads, of equal ones the later")
    _, alive = student.cascade_heads(out, start, alive, 3)
    expect_same(alive, torch.tensor([[False, True, False]]), "alive heads, with room for more")


@exercise(
    "ex5",
    points=2,
    invariant="p = (0.5, 0.3, 0.2), v = (1, 10, 100), keep 2: 3.5",
    cause="what is left divided by its sum, the smallest kept, or one choice for all rows",
)
def test_prune_values(student, rng):
    p, v = tensor([[[[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]]]), tensor([[[[1], [10], [100]]]])
    for keep, right in ((1, [0.5, 70]), (2, [3.5, 72]), (3, [23.5, 72.1]), (8, [23.5, 72.1])):
        out = student.prune_values(p, v, keep)
        expect_close(out, tensor([[right]])[..., None], what=f"out, keep {keep}", atol=1e-9)
    p, v = draw(rng, 2, 4, 3, 5).softmax(-1), draw(rng, 2, 2, 5, 6)
    expect_close(
        student.prune_values(p, v, 5), p @ v.repeat_interleave(2, 1), what="out", atol=1e-9
    )


# ---- exercise 6: high bits first -----------------------------------------------------------


def keys(rng, bits, *shape, scale=1.0):
    """Keys whose codes of so many bits are not nearly a tie; their scale is `scale`."""
    most = 2 ** (bits - 1) - 1
    codes = torch.randint(-most, most + 1, shape, generator=rng).double()
    off = 0.6 * torch.rand(shape, generator=rng, dtype=F64) - 0.3
    off = torch.where(codes.abs() == most, 0.0, off)
    signs = 1 - 2 * (torch.arange(codes[..., 0].numel()) % 2)  # the largest may be negative
    codes[..., 0], off[..., 0] = most * signs.view(shape[:-1]), 0.0
    return (codes + off) * scale, codes.long()


@exercise(
    "ex6",
    points=2,
    invariant="code -37 of 8 bits, 4 of them low: high -3, rest 11; high 2^low + rest is the code",
    cause="a division that rounds to 0, a scale for all keys, 2^bits - 1 steps, or a largest value "
    "without its |.|",
)
def test_split_bits(student, rng):
    k = tensor([[[[127.0, -37, 0, 15], [0, 0, 0, 0], [2.54, -0.74, 0, 0.3]]]])
    high, rest, scale = expect_tuple(student.split_bits(k, 8, 4), (torch.Tensor,) * 3, "split_bits")
    expect_same(high, torch.tensor([[[[7, -3, 0, 0], [0] * 4, [7, -3, 0, 0]]]]), "high")
    expect_same(rest, torch.tensor([[[[15, 11, 0, 15], [0] * 4, [15, 11, 0, 15]]]]), "rest")
    expect_close(scale, tensor([[[[1.0], [1.0], [0.02]]]]), what="scale", rtol=1e-12)
    k, codes = keys(rng, 6, 1, 2, 5, 4, scale=0.25)
    high, rest, scale = student.split_bits(k, 6, 2)
    expect_same(4 * high + rest, codes, "high 2^low + rest")
    for bits, low in ((8, 8), (1, 0), (8, -1)):
        expect_error(
            ValueError, lambda b=bits, n=low: student.split_bits(k, b, n), f"{bits}, {low}"
        )


@exercise(
    "ex6",
    points=1,
    invariant="no score is farther off than the error says",
    cause="rest taken as 0, an error that is too small, or no sqrt(d)",
)
def test_rough_scores(student, rng):
    q, (k, codes) = draw(rng, 1, 2, 3, 4), keys(rng, 8, 1, 1, 24, 4)
    q[:, :, 0] = q[:, :, 0].abs()  # no number makes another's error good
    high, _, scale = student.split_bits(k, 8, 3)
    value = student.rough_scores(q, high, scale, 3)
    scores, error = expect_tuple(value, (torch.Tensor,) * 2, "rough_scores")
    whole = q @ (codes * scale).transpose(-1, -2) / 2
    expect_at_most((scores - whole).abs(), error + 1e-9, "a score's distance from that of all bits")
    right = (q.abs().sum(-1, keepdim=True) * 3.5 / 2).expand(1, 2, 3, 24)
    expect_close(error, right, what="error", rtol=1e-9)


@exercise(
    "ex6",
    points=2,
    invariant="no set of keys gains more; top 0.9, error 0.5: 0.132; flat: tanh(error / 2)",
    cause="e^error for e^(2 error), or a = 1 - top where that is beyond the largest gain",
)
def test_worst_shift(student, rng):
    top, error = tensor([0.9, 0.1, 1.0, 0.5, 1.0]), tensor([0.5, 0.5, 3.0, 0.0, 1e4])
    shift = student.worst_shift(top, error)
    right = [0.1 * math.e / (0.1 * math.e + 0.9) - 0.1, math.tanh(0.25), 0.0, 0.0, 0.0]
    expect_close(shift, tensor(right), what="worst_shift", atol=1e-12)
    for _ in range(20):
        s, e = 3 * draw(rng, 6), float(torch.rand(1, generator=rng)) * 2
        p = s.softmax(0)
        off = e * torch.sign(draw(rng, 6))
        gained = ((s + off).softmax(0) - p).clamp(min=0).sum()
        bound = student.worst_shift(p.max(), tensor(e))
        expect_at_most(gained, bound + 1e-12, f"what was gained, error {e:.2f}, top {p.max():.2f}")


@exercise(
    "ex6",
    points=1,
    invariant="rows of all bits where the bound is above the tolerance, rough rows elsewhere",
    cause="rows the other way round, or errors of keys that a query does not see",
)
def test_progressive(student, rng):
    q, (k, codes) = draw(rng, 1, 2, 4, 4, dtype=F32), keys(rng, 8, 1, 1, 6, 4, scale=0.02)
    for tolerance, all_bits in ((0.0, True), (1.0, False)):
        p, fetched = expect_tuple(
            student.progressive(q, k, 8, 4, tolerance), (torch.Tensor,) * 2, "progressive"
        )
        expect_same(fetched, torch.full((1, 2, 4), all_bits), f"fetched, tolerance {tolerance}")
        used = codes.double() if all_bits else 16 * codes.div(16, rounding_mode="floor") + 7.5
        _, right = exact(q, used.double() * 0.02, used.double() * 0.02)
        expect_close(p, right, what=f"p, tolerance {tolerance}", atol=1e-9)
