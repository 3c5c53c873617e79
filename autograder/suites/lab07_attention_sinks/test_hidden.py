"""Hidden tests of lab07: brute force on random inputs, long streams, and what breaks real code.

Inputs are drawn for each submission.  Expected values are computed here, in float64 or by counting.
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
)
from efflib.lab.again import again, refused
from efflib.models.rotary import rotate

HALF = torch.bfloat16
UNIT = 2.0**-24  # relative error of one float32 rounding


def draw(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


# ---- exercise 1 ------------------------------------------------------------------------------


def exact_scores(x, w_q, w_k, heads, theta):
    """In float64: head by head, turned by angles written out; and a bound of float32's error."""
    x, w_q, w_k = (t.double() for t in (x, w_q, w_k))
    (T, D), d = x.shape, w_q.shape[0] // heads
    group = heads // (w_k.shape[0] // d)
    angle = torch.arange(T)[:, None] * theta ** (-torch.arange(0, d, 2).double() / d)

    def turned(y):
        a, b = y[:, : d // 2], y[:, d // 2 :]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], 1)

    rows, off = [], 0.0
    for h in range(heads):
        of_q, of_k = w_q[h * d : (h + 1) * d], w_k[h // group * d : (h // group + 1) * d]
        q, k = turned(x @ of_q.T), turned(x @ of_k.T)
        rows.append((q @ k.T) / math.sqrt(d))
        # products with D and d terms, the turn, and angles that are off by some roundings of T
        size = (x.abs() @ of_q.abs().T).norm(dim=1).max() * (x.abs() @ of_k.abs().T).norm(
            dim=1
        ).max()
        far = q.norm(dim=1).max() * k.norm(dim=1).max()
        error = UNIT * ((2 * D + d + 8) * size + 8 * T * far) / math.sqrt(d)
        off = max(off, float(error))
    return torch.stack(rows), off


def check_map(student, x, w_q, w_k, heads, theta, driver=None):
    call = student.attention_map if driver is None else partial(student.drive, driver)
    p = call(x, w_q, w_k, heads, theta)
    expect_tensor(p, "attention_map(...)", torch.float32, (heads, len(x), len(x)))
    scores, off = exact_scores(x, w_q, w_k, heads, theta)
    right = scores.masked_fill(torch.ones(len(x), len(x)).triu(1) > 0, -math.inf).softmax(-1)
    assert off < 0.05, "the test's own numbers are too large to compare"
    # where every score is off by at most `off`, p is off by a factor of e^(2 off)
    expect_close(p, right, what="p", atol=math.expm1(2 * off) + 2e-6)


def a_layer(rng, T, D, heads, kv_heads, d):
    x = torch.randn(T, D, generator=rng)
    w_q = torch.randn(heads * d, D, generator=rng) * 1.5 / math.sqrt(D)
    w_k = torch.randn(kv_heads * d, D, generator=rng) * 1.5 / math.sqrt(D)
    return x, w_q, w_k


def drive_parameters(student, x, w_q, w_k, heads, theta):
    """As in the model: weights that can be trained, and an x that is cut from a batch."""
    import torch

    w_q, w_k = (torch.nn.Parameter(w.T.contiguous().T) for w in (w_q, w_k))
    return student.attention_map(x.T.contiguous().T, w_q, w_k, heads, theta).detach()


@exercise(
    "ex1",
    points=3,
    invariant="maps of layers of every shape against a loop over heads",
    cause="heads mixed with tokens, shared keys in the wrong order, an angle of another theta, or "
    "something kept from the last call",
)
def test_maps_of_every_shape(student, rng):
    for heads, kv_heads, d in ((1, 1, 2), (4, 2, 8), (6, 1, 4), (6, 3, 4), (2, 2, 16), (6, 6, 2)):
        T, D = draw(rng, 2, 12), draw(rng, 3, 20)
        for theta in (10.0, 1e4):
            check_map(student, *a_layer(rng, T, D, heads, kv_heads, d), heads, theta)
    x, w_q, w_k = a_layer(rng, 9, 32, 2, 1, 8)
    check_map(student, x, w_q, w_k, 2, 100.0)
    check_map(student, x * 2, w_q, w_k, 2, 100.0)
    check_map(student, *a_layer(rng, 300, 8, 2, 1, 4), 2, 1e4)
    # more places than bfloat16 can count
    check_map(student, *(t.to(HALF) for t in a_layer(rng, 300, 8, 2, 1, 4)), 2, 1e6)
    check_map(student, *a_layer(rng, 1, 1, 1, 1, 2), 1, 5e5)


@exercise(
    "ex1",
    points=2,
    invariant="float32 whatever the dtype of x and of the weights, weights that can be trained, "
    "and scores of any size",
    cause="the dtype of x passed on, only x or only the weights made float32, numbers taken out of "
    "weights that require a gradient, e^s without a shift, scores that are cut, or later keys that "
    "are masked by a finite number, or behind the softmax",
)
def test_maps_of_any_dtype_and_size(student, rng):
    x, w_q, w_k = a_layer(rng, 9, 32, 4, 2, 8)
    for of_x in (torch.float32, HALF, torch.float64):
        for of_w in (torch.float32, HALF, torch.float64):
            check_map(student, x.to(of_x), w_q.to(of_w), w_k.to(of_w), 4, 100.0)
    check_map(student, x, w_q, w_k, 4, 100.0, drive_parameters)
    check_map(student, x * 1e-4, w_q, w_k, 4, 100.0)
    check_map(student, x * 1e-10, w_q * 1e10, w_k * 1e10, 4, 100.0)
    calls = []
    for of_x, of_w, theta in (
        (torch.float32, torch.float32, 100.0),
        (torch.float32, torch.float32, 10.0),
        (HALF, torch.float32, 100.0),
        (torch.float64, HALF, 100.0),
    ):
        layer = a_layer(rng, 6, 8, 4, 2, 4)
        weights = [w.to(of_w) for w in layer[1:]]
        calls.append(("attention_map", layer[0].to(of_x), *weights, 4, theta))
        calls.append(("share", torch.rand(4, 6, 6, generator=rng), 1, 2))
    again(student, calls)
    # the last pair of 16 hardly turns at all: scores 2500 + t / 2 in one head, their negatives in
    # the other
    x = torch.stack([torch.full((9,), 100.0), 100 + 0.02 * torch.arange(9)], 1)
    w_q, w_k = torch.zeros(32, 2), torch.zeros(16, 2)
    w_q[7, 0], w_q[16 + 7, 0], w_k[7, 1] = 1, -1, 1
    check_map(student, x, w_q, w_k, 2, 1e8)
    # key j has the score (j + 1) size in one head, and its negative in the other: a query takes the
    # last that it sees, or the first, whatever the later ones score
    x = torch.stack([torch.full((9,), 4.0), torch.arange(1.0, 10)], 1)
    first = torch.zeros(9, 9)
    first[:, 0] = 1
    for size in (2e4, 1e12, 1e30):
        p = student.attention_map(x, w_q * size, w_k, 2, 1e8)
        expect_tensor(p, "attention_map(...)", torch.float32, (2, 9, 9))
        expect_close(p, torch.stack([torch.eye(9), first]), what="p of far scores", atol=1e-6)


def drive_view(student, p, token, first):
    """The share in a p that is not contiguous: its rows stand in memory as columns."""
    return student.share(p.transpose(1, 2).contiguous().transpose(1, 2), token, first)


@exercise(
    "ex1",
    points=2,
    invariant="the share of every token from every query on, and a ValueError where there is none",
    cause="the queries before `first` counted, numbers below 0 taken from the end, IndexError, or "
    "view() of what is not contiguous",
)
def test_shares_of_every_token(student, rng):
    p = torch.rand(3, 5, 7, generator=rng)
    for token in range(7):
        for first in range(5):
            seen = student.share(p, token, first)
            expect_tensor(seen, "share(...)", torch.float32, (3,))
            right = sum(p[:, t, token].double() for t in range(first, 5)) / (5 - first)
            expect_close(seen, right, what="share", rtol=1e-6)
    seen = student.drive(drive_view, p, 4, 2)
    expect_close(seen, p[:, 2:, 4].double().mean(1), what="share of a view", rtol=1e-6)
    right = 1e-9 * p[:, 2:, 4].double().mean(1)
    expect_close(student.share(1e-9 * p, 4, 2), right, what="a tiny share", rtol=1e-6)
    refused(student, [("share", p, 7, 0), ("share", p, 0, -1)])
    for token, first in ((7, 0), (0, 5), (-1, 2), (2, -1), (6, 6)):
        expect_error(ValueError, lambda t=token, f=first: student.share(p, t, f), "no such column")


@exercise(
    "ex1",
    points=2,
    invariant="even shares: (1 / (first + 1) + ... + 1 / queries) / (queries - first)",
    cause="t in place of t + 1, divided by the number of all queries, or a logarithm in place of "
    "the sum",
)
def test_even_shares_of_long_texts(student, rng):
    cases = [(1, 0), (200, 199), (1500, 1490), (30, 20), (20_000, 0)]
    for _ in range(6):
        queries = draw(rng, 1, 3000)
        cases.append((queries, draw(rng, 0, queries - 1)))
    for queries, first in cases:
        seen = student.even_share(queries, first)
        assert type(seen) is float, f"even_share returned {type(seen).__name__}"
        right = math.fsum(1 / n for n in range(first + 1, queries + 1)) / (queries - first)
        # a sum of n numbers, one by one, may be off by as many roundings of float32
        expect_close(seen, right, what="even_share", rtol=(queries - first + 3) * UNIT)
    for queries, first in ((5, 5), (5, 9), (5, -1), (0, 0)):
        expect_error(
            ValueError, lambda q=queries, f=first: student.even_share(q, f), "no such query"
        )


# ---- what caches hold ------------------------------------------------------------------------


def drive_alive(student, name, args, stream, layers):
    """Bytes of all tensors that are alive behind a long stream, beyond those before it.

    stream [tokens, 2, B, H, d]: a key and a value for each token, the same in all layers.
    """
    import gc

    import torch

    def weight():
        found = [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]
        held = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in found}
        return sum(held.values())

    cache = getattr(student, name)(*args)
    before = weight()
    for pair in stream:
        for layer in range(layers):
            k, v = (x[:, :, None].clone() for x in pair)
            given = cache.append(layer, k, v)
    shapes = [(list(x.shape), str(x.dtype)) for x in given]
    newest = given[1][:, :, -1].tolist()
    del given, k, v, pair
    gc.collect()
    return weight() - before, shapes, newest


def check_alive(student, name, args, size, rng):
    """A long text, and no more than four times `size` tokens a layer; size at most 10."""
    stream, layers = torch.randn(200, 2, 1, 2, 8, generator=rng), 2
    alive, shapes, newest = student.drive(drive_alive, name, args, stream, layers)
    right = ([1, 2, size, 8], "torch.float32")
    assert list(map(tuple, shapes)) == [right] * 2, "another number of tokens, or another dtype"
    assert newest == stream[-1, 1].tolist(), "the newest token's values are others"
    expect_at_most(alive, 4 * size * layers * stream[0].numel() * 4, "bytes that are alive")


# ---- exercise 2 ------------------------------------------------------------------------------


def steps_of(rng, chunks, layers, shape=(1, 2, 4), dtypes=(torch.float32,) * 2):
    """One append for each chunk and layer, with random keys and values."""
    B, H, d = shape
    return [
        (layer, *(torch.randn(B, H, n, d, generator=rng).double().div(3).to(x) for x in dtypes))
        for n in chunks
        for layer in range(layers)
    ]


def drive_window(student, size, steps):
    """Appends beside the student's code; what each gave, and was given, as it is after the last.

    Keys and values arrive as a model gives them: tokens before heads in memory.
    """
    cache, other = student.WindowCache(size), student.WindowCache(size + 1)
    rows, pairs, chunk = [], [], -1
    for layer, *pair in steps:
        k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in pair)
        pairs.append((k, v))
        chunk += layer == 0
        if chunk % 3 == 0 and k.shape[2] <= size:
            other.append(layer, v, k)  # another cache, which is none of this one's business
        before = (cache.length, cache.bytes())
        try:
            given, kind = cache.append(layer, k, v), "ok"
        except ValueError:
            given, kind = None, "ValueError"
        rows.append([kind, given, before, (cache.length, cache.bytes())])
    return rows, pairs


def check_arguments(steps, pairs):
    """Keys and values that a cache was given are at the end what they were."""
    for (layer, *right), pair in zip(steps, pairs, strict=True):
        for x, y, name in zip(pair, right, "kv", strict=True):
            assert torch.equal(x, y), f"a cache changed {name}, which it was given in layer {layer}"


def drive_empty(student, size):
    """How many tokens a new cache has seen."""
    return student.WindowCache(size).length


def check_window(student, size, steps, told=False):
    """What is returned; told: and what the cache says of itself."""
    rows, pairs = student.drive(drive_window, size, steps)
    check_arguments(steps, pairs)
    came, seen = {}, 0
    for (layer, k, v), (kind, given, before, after) in zip(steps, rows, strict=True):
        if k.shape[2] > size:
            assert (kind, tuple(before)) == ("ValueError", tuple(after)), "too many tokens at once"
            continue
        assert kind == "ok", f"append: {kind}"
        seen += k.shape[2] if layer == 0 else 0
        lists = came.setdefault(layer, ([], []))
        assert isinstance(given, tuple) and len(given) == 2, "append returned no pair"
        for kept, new, part in zip(lists, (k, v), given, strict=True):
            kept.extend(new.unbind(2))
            right = torch.stack(kept[-size:], 2)
            expect_tensor(part, "append(...)", right.dtype, tuple(right.shape))
            assert torch.equal(part, right), "append returned something else"
        if told:
            held = [x for pair in came.values() for kept in pair for x in kept[-size:]]
            weight = sum(x.numel() * x.element_size() for x in held)
            assert type(after[0]) is int and type(after[1]) is int, "length and bytes() are ints"
            assert tuple(after) == (seen, weight), "length or bytes()"


@exercise(
    "ex2",
    points=3,
    invariant="long streams of chunks, any number of layers: the last `size` of each, in order",
    cause="a buffer that is written over, layers or caches that share something, an end cut in the "
    "wrong place, or a view() of keys that are not contiguous",
)
def test_long_streams_through_a_window(student, rng):
    for size in (1, 2, 5, 9):
        chunks = [draw(rng, 1, size) for _ in range(draw(rng, 8, 16))]
        shape = (draw(rng, 1, 2), draw(rng, 1, 3), 2)
        check_window(student, size, steps_of(rng, chunks, draw(rng, 1, 4), shape))
    check_window(student, 4, steps_of(rng, [3, 4, 1, 2, 2, 1], 4, (2, 3, 2)))
    check_window(student, 100, steps_of(rng, [70, 70], 2, (1, 2, 2)))


@exercise(
    "ex2",
    points=2,
    invariant="errors in any layer change nothing, and the text goes on after them",
    cause="counted, or some layers changed, before the check, or a check in one layer only",
)
def test_errors_of_a_window(student, rng):
    for size, layers in ((1, 1), (3, 1), (2, 3)):
        chunks = [1, size, size + 2, 1, size + 1, 1]
        # what layer 0 refuses never comes to layers that have not begun
        chunks = [size + 1, *chunks] if layers == 1 else chunks
        check_window(student, size, steps_of(rng, chunks, layers))
    for size in (0, -1, -3):
        expect_error(ValueError, lambda s=size: student.drive(drive_empty, s), "a size below 1")


@exercise(
    "ex2",
    points=2,
    invariant="length, and bytes in any dtype, also where keys and values have two",
    cause="four bytes for every number, one layer's for all, or a count for each layer",
)
def test_length_and_bytes_of_any_dtype(student, rng):
    for dtypes in (
        (HALF, HALF),
        (torch.float64, torch.float64),
        (torch.float16, torch.float32),
        (torch.float32, torch.int8),
    ):
        steps = steps_of(rng, [2, 1, 1, 3, 1], 3, dtypes=dtypes)
        check_window(student, 3, steps, told=True)
    check_window(student, 5, steps_of(rng, [draw(rng, 1, 5) for _ in range(9)], 2), told=True)


@exercise(
    "ex2",
    points=2,
    invariant="after a long text no more is alive than four times `size` tokens a layer",
    cause="the whole text kept, and only its end returned and counted",
)
def test_memory_of_a_window(student, rng):
    check_alive(student, "WindowCache", [6], 6, rng)


# ---- exercise 3 ------------------------------------------------------------------------------


@exercise(
    "ex3",
    points=3,
    invariant="windows of every size, one pass for each token, the last logits of each",
    cause="one token too many or too few, passes for several tokens together, or another row",
)
def test_windows_of_every_size(student, rng):
    table = torch.randn(50, 5, generator=rng)
    for tokens, size in ((1, 1), (7, 1), (7, 2), (7, 6), (7, 7), (7, 20)):
        ids, windows = torch.randint(50, (tokens,), generator=rng), []

        def forward(window, windows=windows):
            assert window.ndim == 2 and len(window) == 1, "forward takes [1, n]"
            windows.append(window[0].tolist())
            return (table[window[0]] * torch.arange(1, window.shape[1] + 1)[:, None])[None]

        logits = student.recomputed(forward, ids, size)
        right = [ids[max(0, t + 1 - size) : t + 1].tolist() for t in range(tokens)]
        assert windows == right, "the model read other windows"
        expect_tensor(logits, "recomputed(...)", torch.float32, (tokens, 5))
        rows = [table[window[-1]] * len(window) for window in right]
        expect_close(logits, torch.stack(rows), what="logits")
    alone = student.recomputed(lambda window: window[..., None].float(), torch.arange(4), 2)
    expect_same(alone, torch.arange(4.0)[:, None], "logits of a single class")
    for dtype in (HALF, torch.float16, torch.float64):
        most = 1000 if dtype is torch.float16 else 10**6
        ids, seen = torch.randint(most, (6,), generator=rng), []
        note = lambda window, seen=seen: seen.append(window.tolist())  # noqa: E731
        found = student.drive(drive_column, ids, 3, note, dtype)
        for logits, column in zip(found, (ids, ids + 1), strict=True):
            right = [[column[max(0, t - 2) : t + 1].tolist()] for t in range(6)]
            assert seen[:6] == right, "the model read other windows"
            del seen[:6]
            expect_same(logits, column[:, None].to(dtype) + torch.arange(3), f"logits in {dtype}")
    for ids in ([3, 3, 3, 1, 3, 1], [2, 1, 2, 1, 2, 1]):  # windows that came before
        for size in (1, 2, 3):
            seen = []
            note = lambda window, seen=seen: seen.append(window[0].tolist())  # noqa: E731
            student.drive(drive_column, torch.tensor(ids), size, note, HALF)
            right = [ids[max(0, t + 1 - size) : t + 1] for t in range(6)]
            assert seen[:6] == right, "a window that came before is read again: one pass a token"


def drive_column(student, ids, size, note, dtype):
    """A model that gives this dtype, for both columns of a batch of ids."""
    import torch

    def forward(window):
        note(window)
        return window[..., None].to(dtype) + torch.arange(3)

    both = torch.stack([ids, ids + 1], 1)
    return [student.recomputed(forward, both[:, i], size) for i in range(2)]


def counted(way, tokens, size):
    """By adding up."""
    if way == "dense":
        return tokens, sum(range(1, tokens + 1))
    windows = [min(t + 1, size) for t in range(tokens)]
    if way == "window":
        return tokens, sum(windows)
    return sum(windows), sum(n * (n + 1) // 2 for n in windows)


@exercise(
    "ex3",
    points=4,
    invariant="costs against sums over all tokens, on both sides of a full window",
    cause="the part in which the window fills up forgotten, or wrong for texts shorter than it",
)
def test_costs_against_sums(student, rng):
    cases = [(n, size) for size in (1, 2, 3, 8) for n in range(11)]
    cases += [(draw(rng, 1, 400), draw(rng, 1, 400)) for _ in range(10)]
    assert student.cost("dense", 5, 0) == (5, 15), "dense reading has no size"
    for way in ("dense", "window", "recompute"):
        for tokens, size in cases:
            seen = student.cost(way, tokens, size)
            assert isinstance(seen, tuple) and [type(x) for x in seen] == [int, int], "two ints"
            assert seen == counted(way, tokens, size), f"{way}, {tokens} tokens, size {size}"


@exercise(
    "ex3",
    points=2,
    invariant="exact for 10^15 tokens, in no time; a ValueError for unknown ways",
    cause="a loop over tokens, a float on the way, or an unknown way that gets a number",
)
def test_exact_for_any_number(student, rng):
    n = 10**15 + draw(rng, 1, 10**6)
    for size in (draw(rng, 1000, 10**6), 10**9 + draw(rng, 0, 1000), n - 1, n, n + 7):
        short = min(n, size)
        seen = short * (short + 1) // 2 + (n - short) * short
        # the sum of m (m + 1) / 2 for m up to L is the number of ways to take 3 of L + 2
        full = math.comb(short + 2, 3) + (n - short) * (short * (short + 1) // 2)
        for way, right in (
            ("dense", (n, n * (n + 1) // 2)),
            ("window", (n, seen)),
            ("recompute", (seen, full)),
        ):
            # more than 64 bits do not travel: the rest of a division does
            forwarded, scores = student.drive(drive_cost, way, n, size)
            assert forwarded == [right[0] % (2**61 - 1), right[0] // 2**40 % 2**60], way
            assert scores == [right[1] % (2**61 - 1), right[1] // 2**40 % 2**60], way
    for way in ("sinks", "Dense", "", "recomputed"):
        for tokens, size in ((5, 3), (0, 3), (2, 3), (0, 0)):
            call = lambda w=way, n=tokens, s=size: student.cost(w, n, s)  # noqa: E731
            expect_error(ValueError, call, f"the way {way!r}")


def drive_cost(student, way, tokens, size):
    """Rests and leading digits of both numbers, which may have more than 64 bits."""
    return [[x % (2**61 - 1), x // 2**40 % 2**60] for x in student.cost(way, tokens, size)]


# ---- exercise 4 ------------------------------------------------------------------------------


def drive_streaming(student, size, pinned, kind, theta, steps):
    """Appends, with what the model would ask before and after each; and all keys and values that
    were given, as they are after the last.

    pinned: a list, which becomes what `kind` says. Keys arrive as a model gives them.
    """
    of_kind = {"list": list, "set": set, "tuple": tuple, "keys": dict.fromkeys}[kind]
    later, pinned = of_kind([n + 1 for n in pinned]), of_kind(pinned)
    given_pinned = list(pinned)
    cache = student.StreamingCache(size, pinned, theta)
    other = student.StreamingCache(size + 1, later, 2 * theta)
    rows, pairs, chunk = [], [], -1
    for layer, *pair in steps:
        k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in pair)
        pairs.append((k, v))
        chunk += layer == 0
        if chunk % 3 == 0 and k.shape[2] == 1:
            other.append(layer, v, k)  # another cache, which is none of this one's business
        before = [cache.next_position, cache.length, cache.tokens()]
        try:
            given, kind = cache.append(layer, k, v), "ok"
        except ValueError:
            given, kind = None, "ValueError"
        rows.append([kind, given, before, [cache.next_position, cache.length, cache.tokens()]])
    if list(pinned) != given_pinned:
        raise RuntimeError("the collection of pinned tokens was changed")
    return rows, pairs


def turn_error(keys, size):
    """How far keys [B, H, n, d] that are turned in their own dtype may be from the exact ones."""
    most = float(keys.double().abs().max())
    if keys.dtype in (HALF, torch.float16):
        # cosine, product and sum are rounded to 2^-9 of at most 2 max |k|
        return 6 * 2.0**-9 * most
    # angles of places up to size are off by some roundings of them, in float32 or finer
    return 8 * (size + 2) * UNIT * most


def check_streaming(student, size, pinned, steps, theta=100.0, kind="list", told=False):
    """Each layer on its own: who is kept and where each stands; told: what the model is told."""
    rows, pairs = student.drive(drive_streaming, size, list(pinned), kind, theta, steps)
    check_arguments(steps, pairs)
    kept, came = {}, {}
    for (layer, k, v), (how, given, before, after) in zip(steps, rows, strict=True):
        new, old = k.shape[2], kept.setdefault(layer, [])
        lists = came.setdefault(layer, ([], []))
        if new > 1 and len(old) + new > size:
            assert (how, before) == ("ValueError", after), "a chunk without place"
            continue
        assert how == "ok", f"append: {how}"
        if len(old) + new > size:
            old.remove(next(t for t in old if t not in pinned))
        old.extend(range(len(lists[0]), len(lists[0]) + new))
        for held, x in zip(lists, (k, v), strict=True):
            held.extend(x.unbind(2))
        keys, values = (torch.stack([held[t] for t in old], 2) for held in lists)
        assert isinstance(given, tuple) and len(given) == 2, "append returned no pair"
        expect_tensor(given[0], "keys", k.dtype, tuple(keys.shape))
        expect_tensor(given[1], "values", v.dtype, tuple(values.shape))
        assert torch.equal(given[1], values), "values"
        turned = rotate(keys.double(), torch.arange(len(old)), theta)
        expect_close(given[0], turned, what="keys", atol=turn_error(keys, size))
        # at place 0 the cosine is 1 and the sine 0 in every dtype
        expect_close(given[0][:, :, 0], keys[:, :, 0], what="the key at place 0")
        if told:
            first = kept[0]
            assert after[1:] == [len(first), first], "length or tokens()"
            assert all(type(t) is int for t in after[2]), "tokens() has other things than ints"
            place = min(len(first), size - 1)
            assert type(after[0]) is int and after[0] == place, "next_position"


@exercise(
    "ex4",
    points=3,
    invariant="long streams with any pinned tokens: who stays, where keys stand, values",
    cause="a pinned token that leaves, a key turned twice, layers that differ, numbers of the text "
    "for places, places in the keys' dtype, arguments written over, or something that two caches "
    "share (the size, the pinned tokens and theta are each one's own)",
)
def test_long_streams_with_pinned_tokens(student, rng):
    for size in (2, 3, 5, 9):
        for _ in range(2):
            pinned = torch.randperm(12, generator=rng)[: draw(rng, 0, size - 1)].tolist()
            shape = (draw(rng, 1, 2), draw(rng, 1, 2), 4)
            steps = steps_of(rng, [1] * draw(rng, 16, 24), draw(rng, 1, 3), shape)
            check_streaming(student, size, pinned, steps, theta=(10.0, 1e4)[draw(rng, 0, 1)])
    check_streaming(student, 4, [0], steps_of(rng, [2] + [1] * 9, 3, (2, 2, 4)), theta=1e6)
    for dtype in (torch.float32, HALF):  # which has no number for every place
        steps = steps_of(rng, [290] + [1] * 12, 1, (1, 1, 4), (dtype,) * 2)
        check_streaming(student, 300, [0, 1], steps, 1e4, told=True)
    # pinned tokens that come late, in numbers that no byte holds
    steps = steps_of(rng, [1] * 290, 1, (1, 1, 2))
    check_streaming(student, 5, [257, 1, 130], steps, told=True)


@exercise(
    "ex4",
    points=1,
    invariant="keys and values of any dtype and size come back in their own",
    cause="float32 on the way, the keys' dtype given to values, or the other way round",
)
def test_dtypes_of_keys_and_values(student, rng):
    for dtypes in (
        (HALF, HALF),
        (torch.float64, torch.float64),
        (HALF, torch.float32),
        (torch.float32, torch.float16),
        (torch.float32, torch.float64),
    ):
        check_streaming(student, 4, [0], steps_of(rng, [1] * 7, 2, (1, 2, 4), dtypes))
    for scale in (1e-8, 3e4):
        steps = steps_of(rng, [1] * 7, 1, (1, 2, 4))
        check_streaming(student, 4, [0], [(layer, k * scale, v * scale) for layer, k, v in steps])


@exercise(
    "ex4",
    points=2,
    invariant="chunks at every filling, in every layer: all find place, or a ValueError and no "
    "change; and what layer 0 has is told, also between layers",
    cause="one place too many or too few, a layer that was changed before the check, a check in "
    "layer 0 only, next_position off by one, or the last layer's tokens told",
)
def test_chunks_at_every_filling(student, rng):
    for size, layers in ((3, 2), (5, 1)):
        for filled in range(size + 1):
            for chunk in range(2, size + 2):
                # what layer 0 refuses never comes to layers that have not begun
                some = layers if filled else 1
                steps = steps_of(rng, [1] * filled + [chunk, 1, 1], some, (1, 1, 2))
                check_streaming(student, size, [0, 3][: size - 1], steps, told=True)
    check_streaming(student, 4, [1, 40], steps_of(rng, [2] + [1] * 50, 3, (1, 1, 2)), told=True)


@exercise(
    "ex4",
    points=1,
    invariant="pinned as a range, a set, a tuple, the keys of a dict; doubled or not; tokens that "
    "never come; never all places",
    cause="the length of a list in place of a set's, a range that is used up, size - 1 refused, an "
    "order taken for granted, or room for every token up to the largest",
)
def test_pinned_of_any_kind(student, rng):
    steps = steps_of(rng, [1] * 12, 1, (1, 1, 2))
    for size, pinned, kind in (
        (3, (1, 0), "tuple"),
        (3, (9, 5), "set"),
        (4, (7, 2, 3), "keys"),
        (2, [4], "list"),
        (3, [2, 2, 2], "list"),
        (1, [], "set"),
        (3, (10**12, 1), "set"),
    ):
        check_streaming(student, size, pinned, steps, kind=kind, told=True)
    assert student.drive(drive_range, 4, 3, steps[:9]) == [0, 1, 2, 8], "range(3), nine tokens"
    for size, pinned in ((2, (5, 9)), (1, [3]), (2, [0, 1, 2]), (0, []), (-2, [])):
        expect_error(
            ValueError,
            lambda s=size, p=pinned: student.drive(drive_streaming, s, p, "tuple", 100.0, []),
            "no place is left",
        )


def drive_range(student, size, pinned, steps):
    """Tokens that are kept at the end, with the first ones pinned as a range."""
    cache = student.StreamingCache(size, range(pinned), 100.0)
    for layer, k, v in steps:
        cache.append(layer, k, v)
    return cache.tokens()


@exercise(
    "ex4",
    points=2,
    invariant="after a long text no more is alive than four times `size` tokens a layer",
    cause="all keys kept, and those that are seen picked anew for every token",
)
def test_memory_of_a_stream(student, rng):
    check_alive(student, "StreamingCache", [6, [3, 1], 100.0], 6, rng)


# ---- exercise 5 ------------------------------------------------------------------------------


@exercise(
    "ex5",
    points=3,
    invariant="losses of any texts, every step counted, in float32 and bfloat16",
    cause="off by one token, a mean over texts, a softmax in bfloat16, or one step too many",
)
def test_losses_of_any_texts(student, rng):
    for B, T, dtype in ((1, 2, torch.float32), (4, 9, torch.float32), (3, 7, torch.bfloat16)):
        ids, asked = torch.randint(13, (B, T), generator=rng), []
        logits = (torch.randn(T, B, 13, generator=rng) * 5).to(dtype)

        def step(token, ids=ids, asked=asked, logits=logits):
            assert token.tolist() == ids[:, len(asked) : len(asked) + 1].tolist(), "another token"
            asked.append(1)
            return logits[len(asked) - 1][:, None]

        losses = student.stream_losses(step, ids)
        assert len(asked) == T - 1, "another number of steps"
        expect_tensor(losses, "stream_losses(...)", torch.float32, (B, T - 1))
        p = logits[:-1].double().log_softmax(-1)  # [T - 1, B, V]
        right = -p.gather(2, ids[:, 1:].T[..., None])[..., 0].T
        expect_close(losses, right, what="losses", atol=1e-5)


def drive_slice(student, step, ids):
    """Texts that are cut from a longer batch."""
    import torch

    first = student.stream_losses(step, torch.cat([ids, ids], 1).flip(1)[:, : ids.shape[1]])
    return first, student.stream_losses(step, torch.cat([ids, ids], 1)[:, : ids.shape[1]])


@exercise(
    "ex5",
    points=1,
    invariant="losses of logits that lie far apart, of large vocabularies, of texts that are cut "
    "from a batch",
    cause="the logarithm of a softmax that is 0, exponentials without a shift, or ids that are "
    "flattened by view()",
)
def test_losses_of_far_logits(student, rng):
    for size, dtype in ((1e-6, torch.float32), (200.0, HALF), (1e4, torch.float32), (1e4, HALF)):
        logits = (torch.rand(2, 9, generator=rng) - 0.5) * size
        logits[:, 0], logits[:, 1] = size, -size
        logits = logits.to(dtype)
        ids = torch.tensor([[3, 0, 1, 4], [5, 1, 0, 6]])
        both = student.drive(drive_slice, lambda token, x=logits: x[:, None], ids)
        p = logits.double().log_softmax(-1)
        for losses, read in zip(both, (ids.flip(1), ids), strict=True):
            expect_tensor(losses, "stream_losses(...)", torch.float32, (2, 3))
            right = -p.gather(1, read[:, 1:])
            expect_close(losses, right, what="losses", atol=8 * UNIT * (size + 4))
    ids = torch.tensor([[7, 49_999, 31_000]])
    logits = torch.randn(2, 1, 1, 50_000, generator=rng)
    rows = iter(logits)
    losses = student.stream_losses(lambda token: next(rows), ids)
    right = -logits[:, 0, 0].double().log_softmax(-1)[[0, 1], ids[0, 1:]]
    expect_close(losses[0], right, what="losses", atol=1e-5)


@exercise(
    "ex5",
    points=3,
    invariant="ratios and spreads against float64, where texts differ far more than caches do",
    cause="no pairs, the spread over tokens, or n in place of n - 1",
)
def test_ratios_against_float64(student, rng):
    for n, T, dtype in (
        (2, 1, torch.float32),
        (3, 8, torch.float32),
        (9, 40, torch.float32),
        (4, 9, torch.float64),
        (300, 2, torch.float32),
    ):
        hard = torch.rand(n, 1, generator=rng) * 8  # of a text, for both
        a, b = ((hard + torch.rand(n, T, generator=rng)).to(dtype) for _ in range(2))
        value = student.compare(a, b)
        assert isinstance(value, tuple) and [type(x) for x in value] == [float] * 3, "three floats"
        per_text = [float((x - y).mean()) for x, y in zip(a.double(), b.double(), strict=True)]
        middle = math.fsum(per_text) / n
        error = math.sqrt(math.fsum((x - middle) ** 2 for x in per_text) / (n - 1) / n)
        for seen, k in zip(value, (0, -2, 2), strict=True):
            # sums of T numbers below 16 in float32, and an error that is a difference of them
            expect_close(seen, math.exp(middle + k * error), what="ratio or spread", rtol=1e-4)
    # losses of 300 and more, of which e^loss is no float32: halves are exact
    a = 300 + torch.randint(20, (3, 4), generator=rng) / 2
    ratio, low, high = student.compare(a + torch.tensor([[0.5], [1.0], [1.5]]), a)
    for seen, power in ((ratio, 1.0), (low, 1 - 3**-0.5), (high, 1 + 3**-0.5)):
        expect_close(seen, math.exp(power), what="ratio or spread of large losses", rtol=1e-5)
    for by in (40.0, -30.0):  # ratios that are large or small, and exact in float32, too
        a = 64 + torch.randint(20, (3, 4), generator=rng).double() / 128
        off = by + torch.tensor([[-0.03125], [0], [0.03125]], dtype=torch.float64)
        found = student.compare(a + off, a)
        for seen, k in zip(found, (0, -2, 2), strict=True):
            right = math.exp(by + k * 0.03125 / 3**0.5)
            expect_close(seen, right, what="ratio or spread that is far from 1", rtol=1e-4)
    # float64 has digits for differences of halves at 10^6 and 2^-10, float32 has not
    a = 2.0**20 + torch.randint(20, (3, 4), generator=rng).double() / 2
    found = student.compare(a + torch.tensor([[1.0], [2.0], [3.0]]).double() / 1024, a)
    for seen, k in zip(found, (0, -2, 2), strict=True):
        right = math.exp((2 + k / 3**0.5) / 1024)
        expect_close(seen, right, what="ratio or spread of float64", rtol=1e-5)
    pairs = [[torch.rand(4, 6, generator=rng).to(x) for _ in range(2)] for x in
             (torch.float32, torch.float64, torch.float32)]  # fmt: skip
    again(student, [("compare", a, b) for a, b in pairs])


@exercise(
    "ex5",
    points=2,
    invariant="equal losses have ratio 1 without a spread, low lies below high, and other shapes "
    "are ValueErrors",
    cause="NaN, or the root of a number below 0, where nothing differs, ends exchanged, or shapes "
    "that are broadcast",
)
def test_small_cases_of_compare(student, rng):
    a = torch.rand(4, 6, generator=rng)
    for seen in student.compare(a, a):
        assert type(seen) is float, "three floats"
        expect_close(seen, 1.0, what="equal losses", atol=1e-6)
    # one difference in all texts: a mean of squares and the square of a mean differ by roundings
    many = [torch.arange(2.0 * n).view(n, 2).double() / 64 for n in range(2, 30)]
    found = student.many("compare", [((b + len(b) / 10, b), {}) for b in many])
    for b, value in zip(many, found, strict=True):
        for seen in value:
            right = math.exp(len(b) / 10)
            expect_close(seen, right, what="all losses apart by as much", rtol=1e-5)
    ratio, low, high = student.compare(a + torch.tensor([[0.1], [0.3], [0.1], [0.3]]), a)
    expect_close(ratio, math.exp(0.2), what="ratio", rtol=1e-5)
    expect_at_most(low, ratio, "low")
    expect_at_most(ratio, high, "ratio")
    one, two = torch.rand(1, 3, generator=rng), torch.rand(2, 3, generator=rng)
    refused(student, [("compare", one, one), ("compare", two, one), ("compare", two[0], two[0])])
    for x, y in (
        ((1, 3), (1, 3)),
        ((2, 3), (3, 3)),
        ((2, 3), (2, 1)),
        ((2, 3, 1), (2, 3, 1)),
        ((2,), (2,)),
        ((2, 3), (3,)),
        ((2, 3), (2, 3, 1)),
        ((3, 3), (1, 3)),
        ((), ()),
        ((2, 2), (2, 2, 2)),
    ):
        expect_error(
            ValueError, lambda x=x, y=y: student.compare(torch.rand(x), torch.rand(y)), "shapes"
        )


# ---- exercise 6 ------------------------------------------------------------------------------


def exact_sink(scores, bias):
    """In float64, shifted by the largest of all."""
    scores, b = scores.double(), bias.double()[None, :, None, None]
    top = torch.maximum(scores.amax(-1, keepdim=True), b)
    e = (scores - top).exp()
    return e / ((b - top).exp() + e.sum(-1, keepdim=True))


def check_many_keys(student, rng):
    """Shares of several hundred keys in bfloat16, each a small one, alike in the first row."""
    scores = torch.rand(1, 2, 3, 600, generator=rng) * 2 - 1
    scores[:, :, 0] = 0.5
    scores, bias = scores.to(HALF), torch.tensor([0.5, 3.0]).to(HALF)
    p = student.sink_softmax(scores, bias)
    expect_tensor(p, "sink_softmax(...)", HALF, (1, 2, 3, 600))
    # rounded by 2^-9 of 8 each: a logarithm below 8, its sum with the largest score, and the
    # difference of a score and that; a few results as well, by 2^-9 of themselves
    off = math.expm1(3 * 8 * 2.0**-9) + 4 * 2.0**-9
    expect_close(p, exact_sink(scores, bias), what="p of 600 keys in bfloat16", rtol=off)


@exercise(
    "ex6",
    points=3,
    invariant="any shape, biases from -20 to 20, large scores, masked keys: the formula in float64",
    cause="one bias for all, exponentials that overflow, a bias that is missing in the shift, or a "
    "sum in bfloat16 that no longer grows",
)
def test_softmax_of_every_shape(student, rng):
    for B, H, T, S in ((1, 1, 1, 1), (2, 3, 4, 5), (1, 6, 2, 30), (3, 2, 7, 7)):
        for shift in (0.0, 500.0, -500.0, 9000.0):
            scores = torch.randn(B, H, T, S, generator=rng) * 3 + shift
            scores[..., 0] = torch.where(torch.rand(B, H, T, generator=rng) < 0.3, -1e30, 0) + shift
            bias = (torch.rand(H, generator=rng) - 0.5) * 40 + shift * draw(rng, 0, 1)
            p = student.sink_softmax(scores, bias)
            expect_tensor(p, "sink_softmax(...)", torch.float32, (B, H, T, S))
            # differences of numbers of this size are off by some roundings of it
            size = 40 + abs(shift)
            expect_close(p, exact_sink(scores, bias), what="p", atol=4 * 2.0**-24 * size)
    scores = torch.randn(1, 2, 3, 4, generator=rng, dtype=torch.float64)
    bias = torch.randn(2, generator=rng, dtype=torch.float64)
    p = student.sink_softmax(scores, bias)
    expect_tensor(p, "sink_softmax(...)", torch.float64, (1, 2, 3, 4))
    expect_close(p, exact_sink(scores, bias), what="p of float64", atol=1e-12)
    calls = []
    for dtype in (torch.float32, torch.float64, HALF, torch.float32):
        numbers = [torch.randn(x, generator=rng).to(dtype) for x in ((2, 4, 3, 5), (4,))]
        calls.append(("sink_softmax", *numbers))
        if dtype is not HALF:
            q, k, v = (torch.randn(2, h, 5, 4, generator=rng).to(dtype) for h in (4, 2, 2))
            mask = torch.rand(5, 5, generator=rng) < 0.6
            calls.append(("sink_attention", q, k, v, mask, numbers[1]))
    again(student, calls)
    check_many_keys(student, rng)
    # bfloat16 has steps of 64 there
    large = torch.tensor([[9024.0, 9152, 9088], [-9152, -9024, -9088], [-1e30, -9984, -9920]])
    large = large.bfloat16().expand(1, 2, 3, 3)
    for b in (9216.0, -9280.0, -9856.0, 0.0):
        p, b = student.sink_softmax(large, torch.tensor([b, -b]).bfloat16()), torch.tensor([b, -b])
        expect_close(p, exact_sink(large, b), what="p of large bfloat16 scores", atol=2.0**-6)
    scores, bias = scores.clamp(-3, 3).bfloat16(), bias.clamp(-3, 3).bfloat16()
    p = student.sink_softmax(scores, bias)
    expect_tensor(p, "sink_softmax(...)", HALF, (1, 2, 3, 4))
    # exponents up to 7, shifted or not, and a few results, each rounded to 2^-9 of itself
    expect_close(p, exact_sink(scores, bias), what="p of bfloat16", atol=16 * 2.0**-9)


@exercise(
    "ex6",
    points=1,
    invariant="rows without a key are 0, whatever the bias; a bias of -inf is the plain softmax",
    cause="NaN from -inf - -inf, a small number in the denominator, or a mask of a finite number",
)
def test_empty_rows_and_no_bias(student, rng):
    scores = torch.randn(2, 2, 3, 5, generator=rng)
    scores[0, :, 1] = -math.inf
    scores[1, 0, 2, 1:] = -math.inf
    for value in (-1e4, -3.0, 0.0, 1e4):
        bias = torch.full((2,), value)
        p = student.sink_softmax(scores, bias)
        expect_tensor(p, "sink_softmax(...)", torch.float32, (2, 2, 3, 5))
        assert (p[0, :, 1] == 0).all() and (p[1, 0, 2, 1:] == 0).all(), "a masked key has a share"
        atol = 4 * 2.0**-24 * (10 + abs(value))
        expect_close(p, exact_sink(scores, bias), what="p", atol=atol)
    # seen: score -1e4, as large as b; masked: 5000, whatever number stands in its place
    q, k = torch.full((1, 1, 1, 1), 100.0), torch.tensor([-100.0, 50.0]).view(1, 1, 2, 1)
    v, mask = torch.tensor([2.0, 8.0]).view(1, 1, 2, 1), torch.tensor([[True, False]])
    out = student.sink_attention(q, k, v, mask, torch.tensor([-1e4]))
    expect_tensor(out, "sink_attention(...)", torch.float32, (1, 1, 1, 1))
    what = "output for the scores -1e4 (seen, v = 2) and masked (v = 8), b = -1e4"
    expect_close(out.flatten(), torch.ones(1), what=what, atol=1e-2)
    for bias in ((-math.inf, -math.inf), (-math.inf, 1.0), (2.0, -math.inf)):
        p = student.sink_softmax(scores[1:], torch.tensor(bias))
        plain, own = scores[1:].double().softmax(-1), exact_sink(scores[1:], torch.tensor(bias))
        for h in range(2):
            right = plain[:, h] if bias[h] == -math.inf else own[:, h]
            expect_close(p[:, h], right, what="p where a head has no bias", atol=1e-6)
    for dtype, far in ((torch.float32, 0), (torch.float64, 0), (HALF, 0), (torch.float32, -9998)):
        rows = torch.tensor([[0.5, -math.inf, 2.0], [-math.inf, 1.0, 1.0], [-math.inf] * 3])
        rows = (rows + far).to(dtype).expand(2, 2, 3, 3)
        bias = torch.tensor([-math.inf, 1.5]).to(dtype)
        p, right = student.sink_softmax(rows, bias), exact_sink(rows[:, :, :2], bias)
        assert (p[:, 1, 2] == 0).all(), "a row without a key"
        expect_close(p[:, :, :2], right, what="p where a head has no bias", atol=2.0**-6)
    q, k, v = (torch.randn(2, 2, 3, 4, generator=rng) for _ in range(3))
    mask, bias = torch.ones(3, 3).tril() > 0, torch.tensor([-math.inf, 0.5])
    right = exact_attention(*(x.double() for x in (q, k, v)), mask, bias.double())
    out = student.sink_attention(q, k, v, mask, bias)
    expect_close(out, right, what="output where a head has no bias", atol=1e-5)
    # both keys have the score -1e4, also in the head without a bias
    q, k = torch.full((1, 2, 1, 1), 100.0), torch.full((1, 1, 2, 1), -100.0)
    v, seen = torch.tensor([2.0, 8.0]).view(1, 1, 2, 1), torch.ones(1, 2) > 0
    out = student.sink_attention(q, k, v, seen, torch.tensor([-math.inf, 0.0]))
    # a logarithm of 1e4 may be rounded, and v is at most 8
    off, right = 4 * UNIT * 1e4 * 8, torch.tensor([5.0, 0.0])
    expect_close(out.flatten(), right, what="output for scores of -1e4", atol=off)


def drive_softmax(student, scores, bias, up):
    """p, and the gradients of (p * up).sum()."""
    scores, bias = (x.clone().requires_grad_() for x in (scores, bias))
    p = student.sink_softmax(scores, bias)
    (p * up).sum().backward()
    return p.detach(), scores.grad, bias.grad


def check_gradients(student, scores, bias, up):
    """p, and the gradients of (p * up).sum(), of the softmax alone."""
    p, of_scores, of_bias = student.drive(drive_softmax, scores, bias, up)
    exact, dp = exact_sink(scores, bias), up.double()
    inner = (exact * dp).sum(-1, keepdim=True)
    rest = 1 - exact.sum(-1)
    expect_close(p, exact, what="p", atol=1e-5)
    assert of_scores is not None and of_bias is not None, "a gradient is missing"
    expect_close(of_scores, exact * (dp - inner), what="gradient of scores", atol=1e-4)
    expect_close(of_bias, -(inner[..., 0] * rest).sum((0, 2)), what="gradient of bias", atol=1e-4)


def drive_attention(student, q, k, v, mask, bias, up):
    """Output of sink_attention, and the gradients of (output * up).sum().

    q, k and v arrive as a model gives them, tokens before heads in memory, and a mask that is cut.
    """
    import torch

    inputs = [x.clone().requires_grad_() for x in (q, k, v, bias)]
    cut = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs[:3]]
    out = student.sink_attention(*cut, torch.cat([mask, mask], 1)[:, : mask.shape[1]], inputs[3])
    (out * up).sum().backward()
    return out.detach(), [x.grad for x in inputs]


@exercise(
    "ex6",
    points=3,
    invariant="gradients of scores and bias, and attention over heads in groups with any mask",
    cause="the bias out of the graph, key heads in the wrong order, a scale of another "
    "d, a mask that is taken for causal, or NaN in the gradient of a row without a key",
)
def test_gradients_and_groups(student, rng):
    scores, up = (torch.randn(2, 3, 4, 5, generator=rng) for _ in range(2))
    # e^b is no number, or 0, also where every score is small
    check_gradients(student, scores, torch.tensor([1e4, -1e4, 100.0]), up)
    scores[0, :, 1], scores[1, 0, 2, 3:] = -math.inf, -math.inf  # no key at all, and some masked
    check_gradients(student, scores, torch.randn(3, generator=rng), up)
    for H, Hkv, d in ((4, 2, 4), (6, 3, 16), (3, 1, 8)):
        B, T, S = draw(rng, 1, 2), draw(rng, 1, 4), draw(rng, 4, 7)
        q, up = (torch.randn(B, H, T, d, generator=rng) for _ in range(2))
        k, v = (torch.randn(B, Hkv, S, d, generator=rng) for _ in range(2))
        mask = torch.rand(T, S, generator=rng) < 0.6
        check_attention(student, q, k, v, mask, torch.randn(H, generator=rng), up)


def exact_attention(q, k, v, mask, bias):
    """In float64, shifted by the largest of what is seen and of b."""
    wide = [x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v)]
    scores = q @ wide[0].transpose(-1, -2) / math.sqrt(q.shape[-1])
    b = bias[None, :, None, None]
    top = torch.maximum(scores.masked_fill(~mask, -math.inf).amax(-1, keepdim=True), b).detach()
    e = torch.where(mask, (torch.where(mask, scores, top) - top).exp(), 0.0)
    return e / ((b - top).exp() + e.sum(-1, keepdim=True)) @ wide[1]


def check_attention(student, q, k, v, mask, bias, up, off=(1e-4, 1e-3)):
    """Output and gradients; off: how far float32 may be from them."""
    out, grads = student.drive(drive_attention, q, k, v, mask, bias, up)
    inputs = [x.double().clone().requires_grad_() for x in (q, k, v, bias)]
    right = exact_attention(*inputs[:3], mask, inputs[3])
    (right * up).sum().backward()
    expect_tensor(out, "sink_attention(...)", q.dtype, tuple(q.shape))
    expect_close(out, right.detach(), what="output", atol=off[0])
    for grad, x in zip(grads, inputs, strict=True):
        assert grad is not None, "a gradient is missing"
        expect_close(grad, x.grad, what="gradient", atol=off[1])


@exercise(
    "ex6",
    points=2,
    invariant="attention in rows without a key, with scores and biases of 1e4, in float64, and for "
    "q, k and v that are cut from one product: numbers, and so are the gradients",
    cause="NaN from a row of -inf, e^s or e^b without a shift, float32 in place of float64, or a "
    "view() of what is not contiguous",
)
def test_attention_at_its_limits(student, rng):
    q, up = (torch.randn(2, 4, 3, 4, generator=rng) for _ in range(2))
    k, v = (torch.randn(2, 2, 5, 4, generator=rng) for _ in range(2))
    bias = torch.randn(4, generator=rng)
    mask = torch.tensor([[0, 0, 0, 0, 0], [1, 1, 0, 1, 0], [0, 0, 0, 0, 1]]) > 0
    check_attention(student, q, k, v, mask, bias, up)
    check_attention(student, q, k, v, torch.zeros(3, 5) > 0, bias, up)
    check_attention(student, q, k, v * 2.0**-70, mask, bias, up, (1e-4 * 2.0**-70, 1e-3))
    for seen in (mask, torch.ones(3, 5) > 0):
        check_attention(student, q, k, v, seen, torch.tensor([1e4, -1e4, 100.0, 0.0]), up)
    doubles = [x.double() for x in (q, k, v)]
    check_attention(student, *doubles, mask, bias.double(), up.double(), (1e-11, 1e-10))
    # scores of 1e4 and 9999.2 seen, 5e3 masked, biases on both sides of them; all exact in float32
    q = torch.full((1, 2, 1, 1), 100.0)
    k = torch.tensor([100.0, 100 - 2**-7, 50.0, -100.0]).view(1, 1, 4, 1)
    v = torch.tensor([1.0, 2.0, 4.0, 8.0]).view(1, 1, 4, 1)
    seen, up = torch.tensor([[1, 1, 0, 1]]) > 0, torch.ones(1, 2, 1, 1)
    # a logarithm of 1e4 may be rounded twice, shares are off by twice that, and meet v and q or k
    share = 4 * UNIT * 1e4
    for pair in ((1e4, -1e4), (0.0, 9999.5), (-1e4, 0.0)):
        for turned in (q, -q):
            off = (share * 8, share * 8 * 100)
            check_attention(student, turned, k, v, seen, torch.tensor(pair), up, off)
