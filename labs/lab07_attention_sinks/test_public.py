"""Public tests of lab07: what lab.check runs.  Examples by hand, properties, and brute force.

Caches are driven: one call runs a list of appends beside the student's code and returns what each
gave, a copy made at once and the thing itself after the last one, so that results which were
written over show.  Models are functions of these tests that are called back, so calls are counted
here.
"""

import math

import torch

from efflib.lab import exercise, expect_close, expect_error, expect_tensor
from efflib.models.rotary import rotate

UNIT = 2.0**-24  # relative error of one float32 rounding
# scores of order 10 from sums of 16 to 64 products: exponents are off by at most some hundred UNIT
MAP = 2e-4
THETA = 100.0


def draw(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


def number(value, what):
    """The float that `value` is; fails for anything else."""
    assert type(value) is float, f"{what} is {value!r} of type {type(value).__name__}, not a float"
    return value


# ---- exercise 1: maps and shares -------------------------------------------------------------


def exact_map(x, w_q, w_k, heads, theta):
    """Query by query and key by key, in float64."""
    x, w_q, w_k = (t.double() for t in (x, w_q, w_k))
    T, d = x.shape[0], w_q.shape[0] // heads
    group = heads // (w_k.shape[0] // d)
    p = torch.zeros(heads, T, T, dtype=torch.float64)
    for h in range(heads):
        g = h // group
        for t in range(T):
            q = rotate(
                (w_q[h * d : (h + 1) * d] @ x[t])[None, None, None], torch.tensor([t]), theta
            )
            k = (x[: t + 1] @ w_k[g * d : (g + 1) * d].T)[None, None]
            k = rotate(k, torch.arange(t + 1), theta)
            p[h, t, : t + 1] = ((k * q).sum(-1)[0, 0] / math.sqrt(d)).softmax(0)
    return p


def a_layer(rng, T, D, heads, kv_heads, d):
    x = torch.randn(T, D, generator=rng)
    w_q = torch.randn(heads * d, D, generator=rng) * 1.5 / math.sqrt(D)
    w_k = torch.randn(kv_heads * d, D, generator=rng) * 1.5 / math.sqrt(D)
    return x, w_q, w_k


def map_of(student, x, w_q, w_k, heads, theta):
    p = student.attention_map(x, w_q, w_k, heads, theta)
    return expect_tensor(p, "attention_map(...)", torch.float32, (heads, len(x), len(x)))


@exercise(
    "ex1",
    points=3,
    invariant="the map is softmax of turned queries and keys over what a query may see",
    cause="heads cut before tokens, repeat in place of repeat_interleave, no division by sqrt(d), "
    "keys not turned, or a mask of zeros in place of -inf",
)
def test_map_against_brute_force(student, rng):
    for T, heads, kv_heads, theta in ((6, 2, 2, 100.0), (5, 4, 2, 1e4), (1, 3, 1, 10.0)):
        x, w_q, w_k = a_layer(rng, T, 12, heads, kv_heads, 4)
        p = map_of(student, x, w_q, w_k, heads, theta)
        expect_close(p.sum(-1), torch.ones(heads, T), what="sum of a row", rtol=1e-5)
        assert (p.triu(1) == 0).all(), "a query sees a later key"
        what = f"{heads} heads, {kv_heads} key heads, {T} tokens: p"
        expect_close(p, exact_map(x, w_q, w_k, heads, theta), what=what, atol=MAP)
    x, w_q, w_k = (t.bfloat16() for t in a_layer(rng, 6, 32, 2, 2, 8))
    p = map_of(student, x, w_q, w_k, 2, 100.0)
    expect_close(p, exact_map(x, w_q, w_k, 2, 100.0), what="p of bfloat16 weights", atol=MAP)


@exercise(
    "ex1",
    points=2,
    invariant="rows 1 0 0, 1/2 1/2 0, 1/3 1/3 1/3: token 0 has the share 5/12 from query 1 on",
    cause="the mean over all queries, a row in place of a column, a sum in place of a mean, no "
    "check of token and first (-1 would be the last), or a token checked against the T queries of "
    "p [H, T, S], which has S columns",
)
def test_share_by_hand(student, rng):
    even = torch.tensor([[1.0, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])
    last = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    p = torch.stack([even, last])
    for token, first, right in (
        (0, 1, [5 / 12, 0]),
        (0, 0, [11 / 18, 1 / 3]),
        (1, 1, [5 / 12, 1 / 2]),
        (2, 2, [1 / 3, 1]),
    ):
        seen = expect_tensor(student.share(p, token, first), "share(...)", torch.float32, (2,))
        what = f"share of token {token} from query {first} on"
        expect_close(seen, torch.tensor(right), what=what, atol=1e-6)
    swapped = student.share(p.flip(0), 0, 1)
    expect_close(swapped, torch.tensor([0, 5 / 12]), what="share, heads swapped", atol=1e-6)
    wide = student.share(torch.tensor([[[0.25, 0.5, 0.25, 0.0]]]), 3, 0)
    expect_close(
        expect_tensor(wide, "share(...)", torch.float32, (1,)), torch.zeros(1), what="share"
    )
    for token, first in ((3, 0), (0, 3), (-1, 0), (0, -1)):
        expect_error(
            ValueError, lambda t=token, f=first: student.share(p, t, f), f"token {token}, {first}"
        )


@exercise(
    "ex1",
    points=1,
    invariant="evenly spread, token 0 has 1, 1/2, 1/3, ... from query to query",
    cause="1 / queries, t in place of t + 1 keys, the queries before `first` counted, or no check",
)
def test_even_share(student, rng):
    for queries, first, right in ((3, 1, 5 / 12), (3, 0, 11 / 18), (1, 0, 1.0), (4, 3, 0.25)):
        seen = number(student.even_share(queries, first), f"even_share({queries}, {first})")
        expect_close(seen, right, what=f"even_share({queries}, {first})", rtol=1e-6)
    for first in (3, -1):
        expect_error(
            ValueError, lambda f=first: student.even_share(3, f), f"even_share(3, {first})"
        )


# ---- exercise 2: the window ------------------------------------------------------------------


def drive_window(student, size, steps):
    """Appends beside the student's code; what each gave, at once and as it is after the last."""
    from copy import deepcopy

    cache, other = student.WindowCache(size), student.WindowCache(size)
    rows = []
    for layer, k, v in steps:
        before = (cache.length, cache.bytes())
        try:
            given = cache.append(layer, k, v)
            kind = "ok"
        except ValueError:
            given, kind = None, "ValueError"
        rows.append([kind, deepcopy(given), given, before, (cache.length, cache.bytes())])
    return rows, other.length, other.bytes()


def check_unchanged(rows):
    """What was returned is at the end what it was at once; rows (kind, at once, at the end, ..)."""
    for i, (_, given, later, *_) in enumerate(rows):
        for x, y, name in zip(given or (), later or (), ("keys", "values"), strict=False):
            assert torch.equal(x, y), (
                f"the {name} that append {i + 1} returned were right, and a later append changed "
                "them: they are the cache's own buffer, which was written over"
            )


def steps_of(rng, chunks, layers, shape=(1, 2, 3), dtype=torch.float32):
    """One append for each chunk and layer, with random keys and values."""
    B, H, d = shape
    return [
        (layer, *(torch.randn(B, H, n, d, generator=rng).to(dtype) for _ in range(2)))
        for n in chunks
        for layer in range(layers)
    ]


def check_window(student, size, steps, told=False):
    """Every append, as it was at once; told: and what the cache says of itself.

    The rows of the driver are returned.
    """
    rows, *other = student.drive(drive_window, size, steps)
    assert list(other) == [0, 0], "a second cache, which was not used, is not empty"
    held, seen = {}, 0
    for i, ((layer, k, v), row) in enumerate(zip(steps, rows, strict=True)):
        kind, given, _, before, after = row
        what = f"append {i + 1} (layer {layer}, {k.shape[2]} tokens, size {size})"
        if k.shape[2] > size:
            assert kind == "ValueError", f"{what}: no ValueError was raised"
            assert tuple(before) == tuple(after), f"{what}: it raised, and changed something"
            continue
        assert kind == "ok", f"{what}: your code raised {kind}, but no more than `size` tokens came"
        old = held.get(layer, (k[:, :, :0], v[:, :, :0]))
        held[layer] = tuple(
            torch.cat([a, b], 2)[:, :, -size:] for a, b in zip(old, (k, v), strict=True)
        )
        seen += k.shape[2] if layer == 0 else 0
        if told:
            check_told(what, after, seen, held)
        assert isinstance(given, tuple) and len(given) == 2, f"{what}: returned {type(given)}"
        for part, right, name in zip(given, held[layer], ("keys", "values"), strict=True):
            expect_tensor(part, f"{name} of {what}", right.dtype, tuple(right.shape))
            expect_close(part, right, what=f"{name} of {what}")
    return rows


def check_told(what, after, seen, held):
    """length and bytes() after an append, of a window that has seen so many tokens."""
    assert type(after[0]) is int and after[0] == seen, (
        f"after {what} length is {after[0]!r}, but {seen} tokens have been seen"
    )
    weight = sum(x.numel() * x.element_size() for pair in held.values() for x in pair)
    assert type(after[1]) is int and after[1] == weight, (
        f"after {what} bytes() is {after[1]!r}, expected {weight}"
    )


@exercise(
    "ex2",
    points=3,
    invariant="returned are the last `size` of everything that came to a layer, in order",
    cause="cut along another dimension, the new ones in front, one too many or too few, layers "
    "that share one buffer, or a buffer that is handed out and written over later",
)
def test_the_last_tokens_are_kept(student, rng):
    check_unchanged(check_window(student, 3, steps_of(rng, [1] * 8, 2)))
    check_window(student, 5, steps_of(rng, [3, 1, 1, 2, 5, 1], 1, shape=(2, 4, 2)))
    check_window(student, 1, steps_of(rng, [1, 1, 1], 1))


@exercise(
    "ex2",
    points=2,
    invariant="length counts tokens that were seen, once, whatever the layers; bytes what is kept",
    cause="length of what is kept, counted once for each layer, or 4 bytes for every number",
)
def test_length_and_bytes(student, rng):
    check_window(student, 4, steps_of(rng, [2, 1, 1, 1, 1], 3), told=True)
    check_window(student, 4, steps_of(rng, [2, 1, 3], 2, dtype=torch.bfloat16), told=True)


@exercise(
    "ex2",
    points=1,
    invariant="more than `size` tokens at once are a ValueError, and change nothing; so is a size "
    "below 1",
    cause="cut without a word, or counted before it is checked",
)
def test_too_many_tokens(student, rng):
    check_window(student, 3, steps_of(rng, [2, 4, 3, 1], 1))
    expect_error(ValueError, lambda: student.drive(drive_window, 0, []), "WindowCache(0)")


# ---- exercise 3: recomputation and costs -----------------------------------------------------


def toy(windows, vocab=7):
    """A model for tests: logits that depend on the tokens and the order of the whole window."""
    weights = torch.randn(64, vocab, generator=torch.Generator().manual_seed(5))

    def forward(window):
        assert isinstance(window, torch.Tensor) and window.ndim == 2 and window.shape[0] == 1, (
            f"forward was called with {getattr(window, 'shape', type(window))}, not [1, n]"
        )
        windows.append(window[0].tolist())
        place = torch.arange(1, window.shape[1] + 1)
        return (weights[window[0] % 64] * place[:, None]).cumsum(0)[None]

    return forward


def check_recomputed(student, ids, size):
    windows = []
    logits = student.recomputed(toy(windows), ids, size)
    tokens = ids.tolist()
    right = [tokens[max(0, t + 1 - size) : t + 1] for t in range(len(tokens))]
    assert windows == right, f"size {size}: the model read {windows}, expected {right}"
    expected = torch.stack([toy([])(torch.tensor([window]))[0, -1] for window in right])
    expect_tensor(logits, "recomputed(...)", torch.float32, tuple(expected.shape))
    expect_close(logits, expected, what=f"logits, size {size}")


@exercise(
    "ex3",
    points=2,
    invariant="the model reads a b, a b c, b c d, ...: the last `size` tokens, and of each its "
    "last logits",
    cause="a window without the token itself, one too long, the end of the whole text for every "
    "token, or the first logits of a pass",
)
def test_windows_are_read_anew(student, rng):
    check_recomputed(student, torch.tensor([3, 1, 4, 1, 5]), 3)
    check_recomputed(student, torch.tensor([2, 7, 1, 8, 2]), 3)
    check_recomputed(student, torch.randint(60, (6,), generator=rng), 1)
    check_recomputed(student, torch.randint(60, (4,), generator=rng), 9)


def ints(value, call):
    ok = isinstance(value, tuple) and len(value) == 2 and all(type(x) is int for x in value)
    assert ok, f"{call} returned {value!r}, not a tuple of two ints"
    return value


@exercise(
    "ex3",
    points=3,
    invariant="5 tokens, size 3: dense 5 and 15, window 5 and 12, recompute 12 and 22",
    cause="a window that is full from the start, the query's own key not counted, or products of a "
    "pass counted as L L",
)
def test_costs_by_hand(student, rng):
    for way, tokens, size, right in (
        ("dense", 5, 3, (5, 15)),
        ("window", 5, 3, (5, 12)),
        ("recompute", 5, 3, (12, 22)),
        ("dense", 2, 9, (2, 3)),
        ("window", 2, 9, (2, 3)),
        ("recompute", 2, 9, (3, 4)),
        ("recompute", 4, 1, (4, 4)),
        ("window", 0, 3, (0, 0)),
        ("recompute", 0, 3, (0, 0)),
        ("dense", 0, 3, (0, 0)),
    ):
        call = f"cost({way!r}, {tokens}, {size})"
        seen = ints(student.cost(way, tokens, size), call)
        assert seen == right, f"{call} is {seen}, expected {right}"


@exercise(
    "ex3",
    points=1,
    invariant="costs are exact ints, however large; an unknown way is a ValueError",
    cause="/ in place of //, or an unknown way that falls into the last case",
)
def test_large_costs(student, rng):
    n, size = 10**9 + 3, 1024
    seen = ints(student.cost("dense", n, size), "cost('dense', ...)")
    assert seen == (n, n * (n + 1) // 2), f"dense, {n} tokens: {seen}"
    expect_error(ValueError, lambda: student.cost("all", 5, 3), "the way 'all'")


# ---- exercise 4: StreamingLLM ----------------------------------------------------------------


def drive_streaming(student, size, pinned, theta, steps):
    """As drive_window, with what the model would ask before and after each append."""
    from copy import deepcopy

    cache = student.StreamingCache(size, pinned, theta)
    other = student.StreamingCache(size, pinned, theta)

    def asked():
        return deepcopy([cache.next_position, cache.length, cache.tokens()])

    rows = []
    for layer, k, v in steps:
        before = asked()
        try:
            given, kind = cache.append(layer, k, v), "ok"
        except ValueError:
            given, kind = None, "ValueError"
        rows.append([kind, deepcopy(given), given, before, asked()])
    return rows, cache.keeps_raw_keys, [other.length, other.tokens()]


def drive_tokens(student, size, theta, steps):
    """tokens() at the end, and once more after its caller has emptied that list."""
    cache = student.StreamingCache(size, [0], theta)
    for layer, k, v in steps:
        cache.append(layer, k, v)
    first = cache.tokens()
    numbers = list(first)
    del first[:]
    return numbers, cache.tokens(), cache.length


def kept_after(kept, seen, new, size, pinned):
    """Numbers of the kept tokens after `new` more, or None where there is no place."""
    if new > 1 and len(kept) + new > size:
        return None
    kept = list(kept)
    if len(kept) + new > size:
        kept.remove(min(t for t in kept if t not in pinned))
    return kept + list(range(seen, seen + new))


def check_streaming(student, size, pinned, steps, theta=THETA, told=False):
    """Every append, as it was at once; told: and what the model is told before and after it.

    The rows of the driver are returned.
    """
    rows, raw, other = student.drive(drive_streaming, size, pinned, theta, steps)
    assert raw is True, f"keeps_raw_keys is {raw!r}, expected True"
    assert other == [0, []], f"a second cache, which was not used, has (length, tokens) {other}"
    kept, seen, came = {}, {}, {}
    for i, ((layer, k, v), row) in enumerate(zip(steps, rows, strict=True)):
        kind, given, _, before, after = row
        new, old = k.shape[2], kept.get(layer, [])
        what = f"append {i + 1} (layer {layer}, {new} tokens, size {size}, pinned {list(pinned)})"
        numbers = kept_after(old, seen.get(layer, 0), new, size, pinned)
        if numbers is None:
            assert kind == "ValueError", (
                f"{what}: {len(old)} are kept, and no ValueError was raised"
            )
            assert before == after, f"{what}: it raised, and changed something"
            continue
        assert kind == "ok", (
            f"{what}: your code raised {kind}, but with {len(old)} kept there is place: "
            "a single token always finds one, several do where kept and new are at most `size`"
        )
        if told and layer == 0 and new == 1:
            place = len(numbers) - 1  # of its own key, among what is kept
            assert type(before[0]) is int and before[0] == place, (
                f"before {what} next_position is {before[0]!r}, and its key then stands at {place}"
            )
        kept[layer], seen[layer] = numbers, seen.get(layer, 0) + new
        came.setdefault(layer, [[], []])
        for lists, x in zip(came[layer], (k, v), strict=True):
            lists.extend(x.unbind(2))
        keys, values = (torch.stack([xs[t] for t in numbers], 2) for xs in came[layer])
        expected = rotate(keys.double(), torch.arange(len(numbers)), theta)
        assert isinstance(given, tuple) and len(given) == 2, f"{what}: returned {type(given)}"
        expect_tensor(given[0], f"keys of {what}", k.dtype, tuple(keys.shape))
        expect_tensor(given[1], f"values of {what}", v.dtype, tuple(values.shape))
        expect_close(given[1], values, what=f"values of {what}")
        # angles below 2^5 are rounded to 2^-20 of one, keys of order 1 are turned by two products;
        # in bfloat16 the cosine, the product and the sum are rounded to 2^-9 of at most 2 max |k|
        rough = 6 * 2.0**-9 * float(keys.abs().max())
        atol = rough if k.dtype == torch.bfloat16 else 1e-4
        expect_close(given[0], expected, what=f"keys of {what}", atol=atol)
        if told and layer == 0:
            assert after[1:] == [len(numbers), numbers] and type(after[1]) is int, (
                f"after {what} (length, tokens()) is {after[1:]}, expected "
                f"[{len(numbers)}, {numbers}]"
            )
            assert all(type(t) is int for t in after[2]), f"tokens() is {after[2]}, not ints"
    return rows


@exercise(
    "ex4",
    points=2,
    invariant="size 4, token 0 pinned: 0 1 2 3, then 0 2 3 4, then 0 3 4 5; keys turned by places "
    "0 1 2 3, values as they came",
    cause="turned keys kept and turned again, keys turned by the numbers of the text, pinned "
    "tokens dropped, the newest dropped in place of the oldest, or a buffer that is handed out and "
    "written over later",
)
def test_sinks_stay_and_places_are_counted(student, rng):
    steps = steps_of(rng, [1] * 8, 1, shape=(1, 1, 4))
    check_unchanged(check_streaming(student, 4, [0], steps))
    check_streaming(student, 5, [0, 1, 2], steps_of(rng, [3, 1, 1, 1, 1, 1], 2, shape=(1, 2, 4)))
    check_streaming(student, 3, [], steps_of(rng, [1] * 6, 1, shape=(2, 1, 4)))


@exercise(
    "ex4",
    points=1,
    invariant="next_position is where the next token's own key will stand; length and tokens() say "
    "what is kept; the list is a new one",
    cause="next_position one too far once the cache is full (before its key comes, one leaves), "
    "taken from the text, length as what was seen, or the cache's own list handed out",
)
def test_what_the_model_is_told(student, rng):
    numbers, later, length = student.drive(
        drive_tokens, 3, THETA, steps_of(rng, [1] * 4, 1, shape=(1, 1, 4))
    )
    assert numbers == [0, 2, 3], f"size 3, token 0 pinned, four tokens: tokens() is {numbers}"
    assert later == numbers and length == 3, (
        f"the list that tokens() returned was emptied by its caller, and now the cache says "
        f"tokens() {later}, length {length}: return a new list"
    )
    check_streaming(student, 4, [0], steps_of(rng, [1] * 8, 2, shape=(1, 1, 4)), told=True)
    check_streaming(student, 3, [9], steps_of(rng, [2] + [1] * 3, 1, shape=(1, 1, 4)), told=True)


@exercise(
    "ex4",
    points=2,
    invariant="pinned may be any tokens: they take a place once they come, and stay; keys and "
    "values keep their dtype",
    cause="pinned taken for their number (the first ones), places kept free for them, a token "
    "that is named twice counted twice, or keys that are float32 whatever came",
)
def test_any_tokens_may_be_pinned(student, rng):
    check_streaming(student, 4, [5, 2], steps_of(rng, [1] * 10, 2, shape=(1, 1, 4)))
    check_streaming(student, 3, [2, 2, 2], steps_of(rng, [1] * 6, 1, shape=(1, 1, 4)))
    check_streaming(student, 3, [9], steps_of(rng, [2] + [1] * 6, 1, shape=(1, 1, 4)), theta=1e4)
    steps = steps_of(rng, [1] * 6, 1, shape=(1, 2, 4), dtype=torch.bfloat16)
    check_streaming(student, 3, [1], steps)


@exercise(
    "ex4",
    points=1,
    invariant="a chunk without place, and a size that pinned tokens fill, are ValueErrors, and "
    "change nothing",
    cause="old tokens dropped for a chunk, something changed before the check, or no room for a "
    "token that is not pinned",
)
def test_what_finds_no_place(student, rng):
    check_streaming(student, 4, [0], steps_of(rng, [2, 3, 2, 2, 1], 1, shape=(1, 1, 4)))
    for size, pinned in ((4, [0, 1, 2, 3]), (1, [7])):
        expect_error(
            ValueError,
            lambda s=size, p=pinned: student.drive(drive_streaming, s, p, THETA, []),
            f"size {size}, pinned {pinned}",
        )


# ---- exercise 5: a fair ablation -------------------------------------------------------------


def reader(ids, asked, dtype=torch.float32, vocab=11):
    """A model for tests, which reads ids one by one: logits that depend on place and token."""
    weights = torch.randn(40, vocab, generator=torch.Generator().manual_seed(3)) * 3

    def step(token):
        t = len(asked)
        assert isinstance(token, torch.Tensor) and list(token.shape) == [len(ids), 1], (
            f"step was called with {getattr(token, 'shape', type(token))}, not [{len(ids)}, 1]"
        )
        asked.append(token[:, 0].tolist())
        return (weights[(token[:, 0] + t) % 40][:, None]).to(dtype)

    return step


def check_losses(student, ids, dtype=torch.float32):
    asked, again = [], []
    losses = student.stream_losses(reader(ids, asked, dtype), ids)
    right = [column.tolist() for column in ids[:, :-1].unbind(1)]
    assert asked == right, f"read were {asked}, expected {right}"
    expect_tensor(losses, "stream_losses(...)", torch.float32, (len(ids), ids.shape[1] - 1))
    step = reader(ids, again, dtype)
    for t in range(ids.shape[1] - 1):
        p = step(ids[:, t : t + 1])[:, 0].double().log_softmax(-1)
        expected = -p.gather(1, ids[:, t + 1, None])[:, 0]
        expect_close(losses[:, t], expected, what=f"losses of token {t + 1}", atol=1e-5)


@exercise(
    "ex5",
    points=2,
    invariant="tokens are read one by one, and each is scored by the logits before it",
    cause="a token scored by its own logits, the last one read for nothing, means in place of "
    "single losses, or a softmax in bfloat16",
)
def test_losses_token_by_token(student, rng):
    check_losses(student, torch.randint(11, (3, 6), generator=rng))
    check_losses(student, torch.randint(11, (2, 5), generator=rng), torch.bfloat16)
    check_losses(student, torch.tensor([[1, 2, 3, 4, 5, 6]] * 3))


def compared(student, a, b):
    value = student.compare(a, b)
    ok = isinstance(value, tuple) and len(value) == 3 and all(type(x) is float for x in value)
    assert ok, f"compare returned {value!r}, not a tuple of three floats"
    return value


@exercise(
    "ex5",
    points=3,
    invariant="a = (2, 5), (6, 8), b = (2, 3), (5, 5): the ratio is e^1.5, from e^0.5 to e^2.5",
    cause="the two means compared without pairs, a deviation in place of the error, n in place of "
    "n - 1, one standard error, or a spread over tokens",
)
def test_ratio_by_hand(student, rng):
    a, b = torch.tensor([[2.0, 5.0], [6.0, 8.0]]), torch.tensor([[2.0, 3.0], [5.0, 5.0]])
    seen = compared(student, a, b)
    for value, power, name in zip(seen, (1.5, 0.5, 2.5), ("ratio", "low", "high"), strict=True):
        expect_close(value, math.exp(power), what=name, rtol=1e-5)
    losses = torch.rand(5, 7, generator=rng) * 4
    for value in compared(student, losses + 1, losses):
        expect_close(value, math.e, what="a = b + 1: ratio, low and high", rtol=1e-5)
    down = compared(student, b, a)
    expect_close(down[0] * seen[0], 1.0, what="ratio of a to b times that of b to a", rtol=1e-5)


@exercise(
    "ex5",
    points=1,
    invariant="one text, or losses of two shapes, cannot be compared: ValueError",
    cause="a spread of one text, which is NaN, or shapes that are broadcast",
)
def test_what_cannot_be_compared(student, rng):
    one, two = (torch.rand(2, 1, generator=rng) for _ in range(2))
    right = float((one.double() - two.double()).mean().exp())
    ratio = compared(student, one, two)[0]
    expect_close(ratio, right, what="ratio of two texts of one token", rtol=1e-5)
    for a, b in (((1, 5), (1, 5)), ((3, 5), (3, 4)), ((3, 5), (1, 5)), ((6,), (6,))):
        expect_error(
            ValueError,
            lambda a=a, b=b: student.compare(torch.rand(a), torch.rand(b)),
            f"losses {list(a)} and {list(b)}",
        )


# ---- exercise 6: a softmax that may rest -----------------------------------------------------


def exact_sink(scores, bias):
    """In float64, shifted by the largest of all."""
    scores, b = scores.double(), bias.double()[None, :, None, None]
    top = torch.maximum(scores.amax(-1, keepdim=True), b)
    e = (scores - top).exp()
    return e / ((b - top).exp() + e.sum(-1, keepdim=True))


def softmax_of(student, scores, bias):
    p = student.sink_softmax(scores, bias)
    return expect_tensor(p, "sink_softmax(...)", scores.dtype, tuple(scores.shape))


@exercise(
    "ex6",
    points=2,
    invariant="scores ln 1, ln 3 and b = ln 4: p = 1/8, 3/8; each head has its own b",
    cause="the plain softmax, one b for all heads, b subtracted, or its column returned",
)
def test_formula_by_hand(student, rng):
    scores = torch.tensor([1.0, 3.0]).log()[None, None, None]
    p = softmax_of(student, scores, torch.tensor([4.0]).log())
    expect_close(p.flatten(), torch.tensor([1 / 8, 3 / 8]), what="p", atol=1e-6)
    scores = torch.randn(2, 3, 4, 5, generator=rng)
    bias = torch.tensor([-1.0, 0.0, 3.0])
    p = softmax_of(student, scores, bias)
    expect_close(p, exact_sink(scores, bias), what="p of three heads", atol=1e-6)
    plain = softmax_of(student, scores, torch.full((3,), -math.inf))
    expect_close(plain, scores.softmax(-1), what="p for b = -inf", atol=1e-6)
    p = softmax_of(student, scores.double(), bias.double())
    expect_close(p, exact_sink(scores, bias), what="p of float64", atol=1e-12)


@exercise(
    "ex6",
    points=1,
    invariant="scores and biases of 1e4 either way, and rows without a key, give numbers",
    cause="e^s computed as it stands, only the largest score taken off and not b, or a mask of a "
    "finite number that a score may reach",
)
def test_large_scores_and_empty_rows(student, rng):
    scores = torch.tensor([[1e4, 9999.0, -math.inf], [-1e4, -1e4, -1e4], [-math.inf] * 3])
    scores = scores[None, None].expand(1, 3, 3, 3).clone()
    bias = torch.tensor([0.0, 1e4, -1e4])
    p = softmax_of(student, scores, bias)
    right = exact_sink(scores.clamp(min=-1e9), bias)
    # a difference of two numbers of 1e4 is off by some roundings of 1e4
    expect_close(p, right, what="p", atol=4 * UNIT * 1e4)
    assert (p[:, :, 2] == 0).all() and (p[:, :, 0, 2] == 0).all(), "a masked key has a share"
    # seen: score -1e4, as large as b; masked: 5000, whatever number stands in its place
    q, k = torch.full((1, 1, 1, 1), 100.0), torch.tensor([-100.0, 50.0]).view(1, 1, 2, 1)
    v, mask = torch.tensor([2.0, 8.0]).view(1, 1, 2, 1), torch.tensor([[True, False]])
    out = student.sink_attention(q, k, v, mask, torch.tensor([-1e4]))
    expect_tensor(out, "sink_attention(...)", torch.float32, (1, 1, 1, 1))
    what = "output for the scores -1e4 (seen, v = 2) and masked (v = 8), b = -1e4"
    expect_close(out.flatten(), torch.ones(1), what=what, atol=1e-2)
    out = student.sink_attention(q, k, v, mask & False, torch.tensor([3.0]))
    expect_close(out.flatten(), torch.zeros(1), what="output of a row without a key")


def drive_attention(student, q, k, v, mask, bias, up):
    """Output of sink_attention, and the gradients of (output * up).sum()."""
    inputs = [x.clone().requires_grad_() for x in (q, k, v, bias)]
    out = student.sink_attention(*inputs[:3], mask, inputs[3])
    (out * up).sum().backward()
    return out.detach(), [x.grad for x in inputs]


def exact_attention(q, k, v, mask, bias, up):
    inputs = [x.double().clone().requires_grad_() for x in (q, k, v, bias)]
    q, k, v, bias = inputs
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    e = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).exp() * mask
    out = e / (bias.exp()[None, :, None, None] + e.sum(-1, keepdim=True)) @ v
    (out * up).sum().backward()
    return out.detach(), [x.grad for x in inputs]


def an_attention(rng, B, H, Hkv, T, S, d):
    q, up = (torch.randn(B, H, T, d, generator=rng) for _ in range(2))
    k, v = (torch.randn(B, Hkv, S, d, generator=rng) for _ in range(2))
    mask = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    if d > 4:  # any mask, not only a causal one
        mask = torch.rand(T, S, generator=rng) < 0.6
        mask[0, -1] = True
    return q, k, v, mask, torch.randn(H, generator=rng), up


@exercise(
    "ex6",
    points=3,
    invariant="attention with the sink, and its gradients, are those of the formula",
    cause="no division by sqrt(d), heads in the wrong order, a mask that hides what is seen or is "
    "taken for causal, or b taken out of the graph by .item(), .data or .detach()",
)
def test_attention_and_its_gradients(student, rng):
    shapes = ((2, 4, 2, 3, 5, 4), (1, 1, 1, 1, 1, 2), (1, 2, 2, 4, 4, 16))
    for shape in (*shapes, shapes[0]):
        inputs = an_attention(rng, *shape)
        out, grads = student.drive(drive_attention, *inputs)
        right, right_grads = exact_attention(*inputs)
        what = f"B, H, Hkv, T, S, d = {shape}: "
        expect_tensor(out, "sink_attention(...)", torch.float32, tuple(inputs[0].shape))
        expect_close(out, right, what=what + "output", atol=1e-4)
        for grad, expected, name in zip(grads, right_grads, ("q", "k", "v", "bias"), strict=True):
            assert grad is not None, f"{what}no gradient reaches {name}"
            expect_close(grad, expected, what=f"{what}gradient of {name}", atol=1e-3)
