"""Hidden tests of lab07: brute force on random inputs, long streams, and what breaks real code.

Inputs are drawn for each submission.  Expected values are computed here, in float64 or by counting.
"""

import math

import torch

from efflib.lab import exercise, expect_at_most, expect_close, expect_error, expect_tensor
from efflib.models.rotary import rotate

HALF = torch.bfloat16
MAP = 2e-4  # probabilities: scores of order 10 are off by some hundred roundings of float32


def draw(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


# ---- exercise 1 ------------------------------------------------------------------------------


def exact_map(x, w_q, w_k, heads, theta):
    """In float64: head by head, turned by angles written out."""
    x, w_q, w_k = (t.double() for t in (x, w_q, w_k))
    T, d = x.shape[0], w_q.shape[0] // heads
    group = heads // (w_k.shape[0] // d)
    angle = torch.arange(T)[:, None] * theta ** (-torch.arange(0, d, 2).double() / d)

    def turned(y):
        a, b = y[:, : d // 2], y[:, d // 2 :]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], 1)

    rows = []
    for h in range(heads):
        g = h // group
        q, k = turned(x @ w_q[h * d : (h + 1) * d].T), turned(x @ w_k[g * d : (g + 1) * d].T)
        s = (q @ k.T) / math.sqrt(d)
        rows.append(s.masked_fill(torch.ones(T, T).triu(1) > 0, -math.inf).softmax(-1))
    return torch.stack(rows)


def a_layer(rng, T, D, heads, kv_heads, d):
    x = torch.randn(T, D, generator=rng)
    w_q = torch.randn(heads * d, D, generator=rng) * 1.5 / math.sqrt(D)
    w_k = torch.randn(kv_heads * d, D, generator=rng) * 1.5 / math.sqrt(D)
    return x, w_q, w_k


def check_map(student, x, w_q, w_k, heads, theta):
    p = student.attention_map(x, w_q, w_k, heads, theta)
    expect_tensor(p, "attention_map(...)", torch.float32, (heads, len(x), len(x)))
    expect_close(p, exact_map(x, w_q, w_k, heads, theta), what="p", atol=MAP)


@exercise(
    "ex1",
    points=4,
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
    check_map(student, *(t.bfloat16() for t in (x, w_q, w_k)), 2, 100.0)
    check_map(student, x.bfloat16(), w_q, w_k, 2, 100.0)
    wide = torch.randn(32, 9, generator=rng).T
    check_map(student, wide, w_q[:, :], w_k, 2, 100.0)


def drive_view(student, p, token, first):
    """The share in a p that is not contiguous: its rows stand in memory as columns."""
    return student.share(p.transpose(1, 2).contiguous().transpose(1, 2), token, first)


@exercise(
    "ex1",
    points=3,
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
    for token, first in ((7, 0), (0, 5), (-1, 2), (2, -1), (6, 6)):
        expect_error(ValueError, lambda t=token, f=first: student.share(p, t, f), "no such column")


@exercise(
    "ex1",
    points=2,
    invariant="even shares: (1 / (first + 1) + ... + 1 / queries) / (queries - first)",
    cause="t in place of t + 1, or divided by the number of all queries",
)
def test_even_shares_of_long_texts(student, rng):
    for _ in range(8):
        queries = draw(rng, 1, 3000)
        first = draw(rng, 0, queries - 1)
        seen = student.even_share(queries, first)
        assert type(seen) is float, f"even_share returned {type(seen).__name__}"
        right = math.fsum(1 / n for n in range(first + 1, queries + 1)) / (queries - first)
        # a sum of up to 3000 numbers, one by one, may be off by as many roundings of float32
        expect_close(seen, right, what="even_share", rtol=3000 * 2.0**-24)


# ---- exercise 2 ------------------------------------------------------------------------------


def steps_of(rng, chunks, layers, shape=(1, 2, 4), dtype=torch.float32):
    """One append for each chunk and layer, with random keys and values."""
    B, H, d = shape
    return [
        (layer, *(torch.randn(B, H, n, d, generator=rng).to(dtype) for _ in range(2)))
        for n in chunks
        for layer in range(layers)
    ]


def drive_window(student, size, steps):
    """Appends beside the student's code; what each gave, as it is after the last."""
    cache, other = student.WindowCache(size), student.WindowCache(size + 1)
    rows = []
    for i, (layer, k, v) in enumerate(steps):
        if i % 3 == 0 and k.shape[2] <= size:
            other.append(layer, v, k)  # another cache, which is none of this one's business
        before = (cache.length, cache.bytes())
        try:
            given, kind = cache.append(layer, k, v), "ok"
        except ValueError:
            given, kind = None, "ValueError"
        rows.append([kind, given, before, (cache.length, cache.bytes())])
    return rows


def check_window(student, size, steps):
    rows = student.drive(drive_window, size, steps)
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
        held = [x for pair in came.values() for kept in pair for x in kept[-size:]]
        weight = sum(x.numel() * x.element_size() for x in held)
        assert type(after[0]) is int and type(after[1]) is int, "length and bytes() are ints"
        assert tuple(after) == (seen, weight), "length or bytes()"


@exercise(
    "ex2",
    points=5,
    invariant="long streams of chunks, any number of layers: the last `size`, what was seen, bytes",
    cause="a buffer that is written over, a count for each layer, an end cut in the wrong place",
)
def test_long_streams_through_a_window(student, rng):
    for size in (1, 2, 5, 9):
        chunks = [draw(rng, 1, size) for _ in range(draw(rng, 8, 16))]
        shape = (draw(rng, 1, 2), draw(rng, 1, 3), 2)
        check_window(student, size, steps_of(rng, chunks, draw(rng, 1, 4), shape))


@exercise(
    "ex2",
    points=2,
    invariant="errors in the middle change nothing",
    cause="counted, or some layers changed, before the check",
)
def test_errors_of_a_window(student, rng):
    for size in (1, 3):
        chunks = [size + 1, 1, size, size + 2, 1, size + 1, 1]
        check_window(student, size, steps_of(rng, chunks, 1))


@exercise(
    "ex2",
    points=2,
    invariant="bytes in any dtype",
    cause="four bytes for every number, or one layer's for all",
)
def test_bytes_of_any_dtype(student, rng):
    for dtype in (torch.bfloat16, torch.float64, torch.float16):
        check_window(student, 3, steps_of(rng, [2, 1, 1, 3], 2, dtype=dtype))


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
    n, size = 10**15 + draw(rng, 1, 10**6), draw(rng, 1000, 10**6)
    seen = n * size - size * (size - 1) // 2
    full = sum(m * (m + 1) // 2 for m in range(1, size + 1)) + (n - size) * size * (size + 1) // 2
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
        expect_error(ValueError, lambda w=way: student.cost(w, 5, 3), f"the way {way!r}")


def drive_cost(student, way, tokens, size):
    """Rests and leading digits of both numbers, which may have more than 64 bits."""
    return [[x % (2**61 - 1), x // 2**40 % 2**60] for x in student.cost(way, tokens, size)]


# ---- exercise 4 ------------------------------------------------------------------------------


def drive_streaming(student, size, pinned, theta, steps):
    """Appends, with what the model would ask before and after each."""
    cache, other = (student.StreamingCache(size, pinned, theta) for _ in range(2))
    rows = []
    for i, (layer, k, v) in enumerate(steps):
        if i % 4 == 0 and k.shape[2] == 1:
            other.append(layer, v, k)
        before = [cache.next_position, cache.length, cache.tokens()]
        try:
            given, kind = cache.append(layer, k, v), "ok"
        except ValueError:
            given, kind = None, "ValueError"
        rows.append([kind, given, before, [cache.next_position, cache.length, cache.tokens()]])
    return rows


def check_streaming(student, size, pinned, steps, theta=100.0):
    """Each layer on its own: who is kept, where each stands, and what the model is told."""
    rows = student.drive(drive_streaming, size, pinned, theta, steps)
    kept, came = {}, {}
    for (layer, k, v), (kind, given, before, after) in zip(steps, rows, strict=True):
        new, old = k.shape[2], kept.setdefault(layer, [])
        lists = came.setdefault(layer, ([], []))
        if new > 1 and len(old) + new > size:
            assert (kind, before) == ("ValueError", after), "a chunk without place"
            continue
        assert kind == "ok", f"append: {kind}"
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
        # in bfloat16 cosine, product and sum are rounded to 2^-9 of at most 2 max |k|
        rough = 6 * 2.0**-9 * float(keys.abs().max())
        expect_close(given[0], turned, what="keys", atol=rough if k.dtype == HALF else 1e-4)
        if layer == 0:
            assert after[1:] == [len(old), old], "length or tokens()"
            assert all(type(t) is int for t in after[2]), "tokens() has other things than ints"
            place = len(old) if len(old) < size else size - 1
            assert type(after[0]) is int and after[0] == place, "next_position"
            assert new > 1 or before[0] == len(old) - 1, "next_position before"


@exercise(
    "ex4",
    points=5,
    invariant="long streams with any pinned tokens: who stays, where keys stand, values",
    cause="a pinned token that leaves, a key turned twice, layers that differ, numbers of the text "
    "for places, or another dtype than came",
)
def test_long_streams_with_pinned_tokens(student, rng):
    for size in (2, 3, 5, 9):
        for _ in range(2):
            pinned = torch.randperm(12, generator=rng)[: draw(rng, 0, size - 1)].tolist()
            shape = (draw(rng, 1, 2), draw(rng, 1, 2), 4)
            steps = steps_of(rng, [1] * draw(rng, 16, 24), draw(rng, 1, 3), shape)
            check_streaming(student, size, pinned, steps, theta=(10.0, 1e4)[draw(rng, 0, 1)])
    check_streaming(student, 4, [0], steps_of(rng, [1] * 9, 2, (1, 2, 4), HALF))


@exercise(
    "ex4",
    points=2,
    invariant="chunks at every filling: all find place, or a ValueError and no change",
    cause="one place too many or too few, or a layer that was changed before the check",
)
def test_chunks_at_every_filling(student, rng):
    for size in (3, 6):
        for filled in range(size + 1):
            for chunk in range(2, size + 2):
                steps = steps_of(rng, [1] * filled + [chunk, 1, 1], 1, (1, 1, 2))
                check_streaming(student, size, [0, 3][: size - 1], steps)


@exercise(
    "ex4",
    points=2,
    invariant="pinned as a range, a tuple or a list, doubled or not; never all places",
    cause="the length of a list in place of a set's, a range that is used up, or size - 1 refused",
)
def test_pinned_of_any_kind(student, rng):
    steps = steps_of(rng, [1] * 9, 1, (1, 1, 2))
    for size, pinned in ((3, (1, 0)), (2, [4]), (3, [2, 2, 2]), (1, [])):
        check_streaming(student, size, pinned, steps)
    rows = student.drive(drive_range, 4, 3, 100.0, steps)
    assert rows == [0, 1, 2, 8], f"range(3) pinned, nine tokens: {rows}"
    for size, pinned in ((2, (5, 9)), (1, [3]), (2, [0, 1, 2])):
        expect_error(
            ValueError,
            lambda s=size, p=pinned: student.drive(drive_range, s, p, 100.0, []),
            "no place is left",
        )


def drive_range(student, size, pinned, theta, steps):
    """Tokens that are kept at the end; a number of pinned ones is a range."""
    pinned = range(pinned) if isinstance(pinned, int) else pinned
    cache = student.StreamingCache(size, pinned, theta)
    for layer, k, v in steps:
        cache.append(layer, k, v)
    return cache.tokens()


# ---- exercise 5 ------------------------------------------------------------------------------


@exercise(
    "ex5",
    points=4,
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


@exercise(
    "ex5",
    points=2,
    invariant="equal losses have ratio 1 without a spread, low lies below high, and other shapes "
    "are ValueErrors",
    cause="NaN where nothing differs, ends exchanged, or shapes that are broadcast",
)
def test_small_cases_of_compare(student, rng):
    a = torch.rand(4, 6, generator=rng)
    for seen in student.compare(a, a):
        assert type(seen) is float, "three floats"
        expect_close(seen, 1.0, what="equal losses", atol=1e-6)
    ratio, low, high = student.compare(a + torch.tensor([[0.1], [0.3], [0.1], [0.3]]), a)
    expect_close(ratio, math.exp(0.2), what="ratio", rtol=1e-5)
    expect_at_most(low, ratio, "low")
    expect_at_most(ratio, high, "ratio")
    for x, y in (((1, 3), (1, 3)), ((2, 3), (3, 3)), ((2, 3), (2, 1)), ((2, 3, 1), (2, 3, 1))):
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


@exercise(
    "ex6",
    points=3,
    invariant="any shape, biases from -20 to 20, large scores, masked keys: the formula in float64",
    cause="one bias for all, exponentials that overflow, a bias that is missing in the shift",
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


@exercise(
    "ex6",
    points=2,
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
    p = student.sink_softmax(scores[1:], torch.full((2,), -math.inf))
    expect_close(p, scores[1:].softmax(-1), what="p without bias", atol=1e-6)


def drive_softmax(student, scores, bias, up):
    """p, and the gradients of (p * up).sum()."""
    scores, bias = (x.clone().requires_grad_() for x in (scores, bias))
    p = student.sink_softmax(scores, bias)
    (p * up).sum().backward()
    return p.detach(), scores.grad, bias.grad


def drive_attention(student, q, k, v, mask, bias, up):
    """Output of sink_attention, and the gradients of (output * up).sum()."""
    inputs = [x.clone().requires_grad_() for x in (q, k, v, bias)]
    out = student.sink_attention(*inputs[:3], mask, inputs[3])
    (out * up).sum().backward()
    return out.detach(), [x.grad for x in inputs]


@exercise(
    "ex6",
    points=4,
    invariant="gradients of scores and bias, and attention over heads in groups with any mask",
    cause="the bias out of the graph, key heads in the wrong order, a scale of another "
    "d, a mask that is taken for causal, or NaN in the gradient of a row without a key",
)
def test_gradients_and_groups(student, rng):
    scores, up = (torch.randn(2, 3, 4, 5, generator=rng) for _ in range(2))
    scores[0, :, 1], scores[1, 0, 2, 3:] = -math.inf, -math.inf  # no key at all, and some masked
    bias = torch.randn(3, generator=rng)
    p, of_scores, of_bias = student.drive(drive_softmax, scores, bias, up)
    exact, dp = exact_sink(scores, bias), up.double()
    inner = (exact * dp).sum(-1, keepdim=True)
    rest = 1 - exact.sum(-1)
    expect_close(p, exact, what="p", atol=1e-5)
    assert of_scores is not None and of_bias is not None, "a gradient is missing"
    expect_close(of_scores, exact * (dp - inner), what="gradient of scores", atol=1e-4)
    expect_close(of_bias, -(inner[..., 0] * rest).sum((0, 2)), what="gradient of bias", atol=1e-4)
    for H, Hkv, d in ((4, 2, 4), (6, 3, 16), (3, 1, 8)):
        B, T, S = draw(rng, 1, 2), draw(rng, 1, 4), draw(rng, 4, 7)
        q, up = (torch.randn(B, H, T, d, generator=rng) for _ in range(2))
        k, v = (torch.randn(B, Hkv, S, d, generator=rng) for _ in range(2))
        mask = torch.rand(T, S, generator=rng) < 0.6
        bias = torch.randn(H, generator=rng)
        out, grads = student.drive(drive_attention, q, k, v, mask, bias, up)
        inputs = [x.double().clone().requires_grad_() for x in (q, k, v, bias)]
        wide = [x.repeat_interleave(H // Hkv, 1) for x in inputs[1:3]]
        e = (inputs[0] @ wide[0].transpose(-1, -2) / math.sqrt(d)).exp() * mask
        right = e / (inputs[3].exp()[None, :, None, None] + e.sum(-1, keepdim=True)) @ wide[1]
        (right * up).sum().backward()
        expect_tensor(out, "sink_attention(...)", torch.float32, (B, H, T, d))
        expect_close(out, right.detach(), what="output", atol=1e-4)
        for grad, x in zip(grads, inputs, strict=True):
            assert grad is not None, "a gradient is missing"
            expect_close(grad, x.grad, what="gradient", atol=1e-3)
