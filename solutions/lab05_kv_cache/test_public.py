"""Public tests of lab05: what lab.check runs.  Properties, and numbers to check by hand.

k and v are [B, Hkv, T, d], lengths the tokens of each row, S the slots of the longest one.
"""

import math

import torch

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_error,
    expect_number,
    expect_same,
    expect_tensor,
    expect_tuple,
)

FLOAT32 = 2.0**-24  # relative error of one float32 rounding
FLOAT16 = 2.0**-11
BFLOAT16 = 2.0**-8
SMALL = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 4}
LLAMA_7B = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
LLAMA_70B = {"num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64}
LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_attention_heads": 128}
LATENT |= {"num_hidden_layers": 61, "hidden_size": 7168, "num_key_value_heads": 128}
PARAMETERS = 6_738_415_616  # of LLAMA_7B
WINDOW_10 = SMALL | {"sliding_window": 10}
SLIDING, FULL = "sliding_attention", "full_attention"
KiB, MiB, GiB = 2**10, 2**20, 2**30


def per_token(student, config, *args, **kwargs):
    return expect_number(student.bytes_per_token(config, *args, **kwargs), "bytes_per_token(...)")


def near(found, right):
    """The order of additions and multiplications is free: equal but for float's rounding."""
    return math.isclose(found, right, rel_tol=1e-12)


def in_all(student, config, lengths, *args, **kwargs):
    value = student.cache_bytes(config, lengths, *args, **kwargs)
    return expect_number(value, "cache_bytes(...)")


# ---- exercise 1: bytes of a token ------------------------------------------------------------


@exercise(
    "ex1",
    points=2,
    invariant="2 layers, hidden size 8, 4 query heads: 64 bytes in 16 bits, 32 with 2 key heads",
    cause="keys without values, query heads where key heads count, or a head's size that was "
    "divided by the number of key heads",
)
def test_bytes_by_hand(student, rng):
    for changes, expected in (
        ({}, 64),
        ({"num_key_value_heads": 2}, 32),
        ({"num_key_value_heads": None, "head_dim": None}, 64),
        ({"num_key_value_heads": 1, "head_dim": 5}, 40),
        ({"kv_lora_rank": None, "sliding_window": None}, 64),
    ):
        found = per_token(student, SMALL | changes)
        assert near(found, expected), f"with {changes}: {found:g} bytes, expected {expected}"


@exercise(
    "ex1",
    points=2,
    invariant="the lectures' figures: 512 KiB, 2.5 MiB and 320 KiB a token; 1.25 and 160 GiB",
    cause="a factor of 2 (keys and values) or of 2 bytes is missing, or lengths are not added up",
)
def test_figures_of_the_lectures(student, rng):
    gqa = LLAMA_70B | {"num_key_value_heads": 8}
    large = {"num_hidden_layers": 126, "hidden_size": 16384, "num_attention_heads": 128}
    for name, config, expected in (
        ("Llama-2-7B", LLAMA_7B, 512 * KiB),
        ("Llama-2-70B with MHA", LLAMA_70B, 2.5 * MiB),
        ("Llama-3.1-70B", gqa, 320 * KiB),
        ("Llama-3.1-405B", large | {"num_key_value_heads": 8}, 504 * KiB),
    ):
        found = per_token(student, config)
        assert near(found, expected), f"{name}: {found / KiB:g} KiB, expected {expected / KiB:g}"
    for config, lengths, expected in (
        (LLAMA_70B, [512], 1.25),
        (LLAMA_70B, [4096] * 16, 160),
        (LLAMA_7B, [8192], 4),
        (LLAMA_7B, [2048, 6144], 4),
        (LLAMA_7B, [], 0),
    ):
        found = in_all(student, config, lengths) / GiB
        assert near(found, expected), f"lengths {lengths}: {found:g} GiB, expected {expected:g}"


@exercise(
    "ex1",
    points=1,
    invariant="a latent counts once for all heads; groups of 32 add a bit to each value; errors",
    cause="keys and values where one latent serves both, 32 / G forgotten, a window that is "
    "ignored, or bits that are not checked",
)
def test_latents_metadata_and_windows(student, rng):
    found = per_token(student, LATENT)
    assert near(found, 61 * 576 * 2), f"DeepSeek-V3: {found:g} bytes, expected {61 * 576 * 2}"
    for bits, group, expected in ((2, 32, 96 * KiB), (4, None, 128 * KiB), (8, 64, 272 * KiB)):
        found = per_token(student, LLAMA_7B, bits, group)
        assert near(found, expected), f"{bits} bits, G = {group}: {found:g}, expected {expected}"
    found = in_all(student, SMALL | {"sliding_window": 10}, [4, 10, 25], 4, 8)
    assert near(found, 24 * 32), (
        f"window 10, lengths 4, 10, 25: {found:g} bytes, expected {24 * 32}"
    )
    for call, what in (
        (lambda: student.bytes_per_token(SMALL, 0), "bits = 0"),
        (lambda: student.bytes_per_token(SMALL, 4, 0), "groups of 0"),
        (lambda: student.cache_bytes(SMALL, [3, -1]), "a length of -1"),
        (lambda: student.cache_bytes(SMALL, [-1, 3]), "a length of -1 that comes first"),
        (lambda: student.cache_bytes(WINDOW_10, [3, -1]), "a length of -1, with a window"),
        (lambda: student.cache_bytes(SMALL, [], 0), "bits = 0 and no sequences"),
    ):
        expect_error(ValueError, call, what)


@exercise(
    "ex1",
    points=1,
    invariant="half of the layers with a window of 10: the other half keeps everything",
    cause="a window for all layers, layers counted by the wrong name, names that are not checked",
)
def test_layers_that_differ(student, rng):
    half = WINDOW_10 | {"layer_types": [SLIDING, FULL]}  # a layer keeps 32 bytes of a token
    for config, lengths, expected in (
        (half, [25], (10 + 25) * 32),
        (half, [4, 25, 0], (4 + 10 + 4 + 25) * 32),
        (half | {"layer_types": [FULL, FULL]}, [25], 50 * 32),
        (half | {"layer_types": None}, [25], 20 * 32),
        (half | {"sliding_window": None}, [25], 50 * 32),
    ):
        found = in_all(student, config, lengths)
        about = f"window {config['sliding_window']}, layers {config['layer_types']}"
        assert near(found, expected), f"{about}, {lengths}: {found:g} bytes, expected {expected}"
    found = per_token(student, half)
    assert near(found, 64), f"a token in all layers: {found:g} bytes, expected 64"
    large = {"head_dim": 256, "num_key_value_heads": 8, "num_attention_heads": 16}
    large |= {"num_hidden_layers": 48, "hidden_size": 3840, "sliding_window": 1024}
    large["layer_types"] = ([SLIDING] * 5 + [FULL]) * 8
    found = in_all(student, large, [32768]) / MiB
    assert near(found, 2368), (
        f"48 layers, every 6th full, 32768 tokens: {found:g} MiB, expected 2368"
    )
    for kinds in ([FULL], [FULL] * 3, [FULL, "chunked_attention"]):
        config = half | {"layer_types": kinds}
        expect_error(ValueError, lambda c=config: student.cache_bytes(c, [5]), f"layers {kinds}")


# ---- exercise 2: a cache of unequal rows -----------------------------------------------------


def drive_cache(student, steps, how):
    """Runs beside the student's code: a cache that is fed; what it returns after each step.

    how: "spoil" overwrites what went in and came out, tensors and lists, as others may do; "views"
    passes tensors that are not contiguous.
    """

    def shown(lengths):
        ints = isinstance(lengths, list) and all(isinstance(n, int) for n in lengths)
        return list(lengths) if ints else f"{type(lengths).__name__} {lengths}"

    cache, out = student.RowCache(), []
    for step in steps:
        *given, numbers = step
        numbers = list(numbers)
        given = [x.clone() for x in given]
        if how == "views":
            given = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in given]
        parts = cache.append(*given, numbers) if given else cache.truncate(numbers)
        parts = list(parts) if given else []
        out.append([[p.clone() for p in parts], shown(cache.lengths)])
        out[-1] += [[x.clone() for x in given], list(numbers)]
        if how == "spoil":
            for tensor in (*given, *parts):
                tensor.zero_()
            numbers[:] = [len(out)] * len(numbers)
    return out


def appended(result, step, history, what):
    """Checks one append against `history`, a list of (k [Hkv, n, d], v) for each row."""
    parts, lengths, given, _ = result
    assert len(parts) == 3, f"{what}: append must return (keys, values, mask)"
    keys, values, mask = parts
    k, v, counts = step
    expect_same(given[0], k, f"{what}: k, which append must leave as it was,")
    expect_same(given[1], v, f"{what}: v, which append must leave as it was,")
    b, h, t, d = k.shape
    before = [row[0].shape[1] for row in history]
    after = [n + c for n, c in zip(before, counts, strict=True)]
    assert lengths == after, f"{what}: lengths are {lengths}, expected {after}"
    size = max(after)
    expect_tensor(keys, f"{what}: keys", k.dtype, (b, h, size, d))
    expect_tensor(values, f"{what}: values", k.dtype, (b, h, size, d))
    expect_tensor(mask, f"{what}: mask", torch.bool, (b, t, size))
    grown = []
    for row, (n, c) in enumerate(zip(before, counts, strict=True)):
        ks = torch.cat([history[row][0], k[row, :, :c]], dim=1)
        vs = torch.cat([history[row][1], v[row, :, :c]], dim=1)
        grown.append((ks, vs))
        for i in range(c):
            seen = [j for j in range(size) if mask[row, i, j]]
            right = n + i + 1
            assert seen == list(range(right)), (
                f"{what}: new token {i} of row {row} (which had {n}) sees slots {seen}, "
                f"expected 0 to {right - 1}"
            )
        expect_same(keys[row, :, : n + c], ks, f"{what}: keys of row {row}")
        expect_same(values[row, :, : n + c], vs, f"{what}: values of row {row}")
    return grown


def follow(student, steps, how="plain"):
    """Runs the steps and checks every one against rows kept here; returns the results."""
    results = student.drive(drive_cache, steps, how)
    assert isinstance(results, list) and len(results) == len(steps), "the cache stopped early"
    first = steps[0][0]
    history = [(first[0, :, :0], first[0, :, :0])] * first.shape[0]
    for number, (step, result) in enumerate(zip(steps, results, strict=True), start=1):
        if len(step) == 1:
            history = [(k[:, :n], v[:, :n]) for (k, v), n in zip(history, step[0], strict=True)]
            right = [k.shape[1] for k, _ in history]
            assert result[1] == right, f"step {number}: truncated to {result[1]}, expected {right}"
        else:
            history = appended(result, step, history, f"step {number}")
        about = f"step {number}: the list that was passed is now {result[3]}, before {step[-1]}"
        assert result[3] == list(step[-1]), about
    return results


def new_tokens(rng, shape, counts, dtype=torch.float32):
    k, v = (torch.randn(shape, generator=rng).to(dtype) for _ in range(2))
    return k, v, counts


def exact_attention(q, k, v, mask):
    """softmax(q k^T / sqrt d) v in float64, query by query. [B, H, T, d]"""
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=torch.float64)
    share = q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for t in range(q.shape[2]):
                slots = [j for j in range(k.shape[2]) if mask[b, t, j]]
                if not slots:
                    continue
                keys, values = (x[b, h // share, slots].double() for x in (k, v))
                scores = keys @ q[b, h, t].double() / math.sqrt(q.shape[3])
                out[b, h, t] = scores.softmax(0) @ values
    return out


@exercise(
    "ex2",
    points=2,
    invariant="rows of 5 and 2 tokens get 2 and 1: the new ones see 6 and 7 slots, and 3",
    cause="new tokens behind the longest row for all rows, a mask from the lengths after the "
    "append, or filling that is kept as a token",
)
def test_rows_by_hand(student, rng):
    steps = [new_tokens(rng, (2, 1, 5, 2), [5, 2]), new_tokens(rng, (2, 1, 2, 2), [2, 1])]
    follow(student, [*steps, new_tokens(rng, (2, 1, 3, 2), [0, 3])])
    follow(student, [new_tokens(rng, (1, 2, 3, 4), [2])])  # another cache


@exercise(
    "ex2",
    points=2,
    invariant="attention through the cache is attention over each row's whole text",
    cause="a token that sees a later one, filling that is seen, the wrong scale of the scores, or "
    "a mask that leaves out the token itself",
)
def test_decoding_equals_recomputation(student, rng):
    steps = [
        new_tokens(rng, (3, 2, t, 4), counts)
        for t, counts in ((6, [6, 1, 4]), (1, [1, 1, 1]), (3, [0, 3, 2]), (2, [2, 0, 1]))
    ]
    queries = [torch.randn(3, 4, len(s[0][0, 0]), 4, generator=rng) for s in steps]
    texts = [([], []) for _ in range(3)]
    for q, step, result in zip(queries, steps, follow(student, steps), strict=True):
        keys, values, mask = result[0]
        out = expect_tensor(
            student.attend(q, keys, values, mask), "attend(...)", torch.float32, tuple(q.shape)
        )
        for row, c in enumerate(step[2]):
            for i in range(c):
                texts[row][0].append(step[0][row, :, i])
                texts[row][1].append(step[1][row, :, i])
                k, v = (torch.stack(x, dim=1)[None] for x in texts[row])
                everything = torch.ones(1, 1, k.shape[2], dtype=torch.bool)
                right = exact_attention(q[row : row + 1, :, i : i + 1], k, v, everything)
                expect_close(out[row : row + 1, :, i : i + 1], right, what="the output", atol=1e-5)


@exercise(
    "ex2",
    points=1,
    invariant="a row that was cut back goes on from there; what does not fit is a ValueError",
    cause="old tokens behind the cut that are seen again, a short row that truncate makes longer, "
    "or counts and shapes that are not checked",
)
def test_truncation_and_errors(student, rng):
    one = new_tokens(rng, (2, 2, 4, 2), [4, 2])
    steps = [one, ([1, 3],), new_tokens(rng, (2, 2, 2, 2), [1, 2]), ([0, 0],)]
    steps.append(new_tokens(rng, (2, 2, 1, 2), [1, 0]))
    follow(student, steps)
    full = [new_tokens(rng, (2, 2, 3, 2), [3, 3]), new_tokens(rng, (2, 2, 2, 2), [1, 2])]
    follow(student, full, "spoil")  # what went in and came out is changed by others
    k, v, counts = one
    for bad, what in (
        ((k, v, [5, 2]), "5 of 4 tokens"),
        ((k, v, [4, -1]), "-1 tokens"),
        ((k, v, [4]), "one count for two rows"),
        ((k, v[:, :, :3], counts), "3 values for 4 keys"),
        ((k[:1], v[:1], [4]), "another number of rows"),
        (([-1, 2],), "a length of -1"),
        (([2],), "one length for two rows"),
    ):
        steps = [one, bad]
        expect_error(ValueError, lambda steps=steps: student.drive(drive_cache, steps, ""), what)


@exercise(
    "ex2",
    points=1,
    invariant="query heads 0 and 1 read key head 0, 2 and 3 key head 1; nothing seen gives zeros",
    cause="heads repeated in the order 0 1 0 1, NaN from a softmax over nothing, exp of large "
    "scores, or arithmetic in bfloat16",
)
def test_attention_by_hand(student, rng):
    q = torch.zeros(1, 4, 2, 2)
    k = torch.zeros(1, 2, 3, 2)
    v = torch.tensor([[[[1.0, 0], [3, 0], [50, 0]], [[0, 10], [0, 30], [0, 50]]]])
    mask = torch.tensor([[[True, True, False], [False] * 3]])
    out = expect_tensor(student.attend(q, k, v, mask), "attend(...)", torch.float32, (1, 4, 2, 2))
    right = torch.tensor([[2.0, 0], [2, 0], [0, 20], [0, 20]])
    expect_close(out[0, :, 0], right, what="equal scores: the mean of the values", atol=1e-5)
    expect_close(out[0, :, 1], torch.zeros(4, 2), what="the output of a query that sees nothing")
    large = torch.tensor([[[[60.0, 0], [0, 60]]]])  # scores 2546 and 0: exp(2546) is inf
    out = student.attend(large[:, :, :1], large, v[:, :1, :2], torch.ones(1, 1, 2).bool())
    expect_close(out[0, 0], v[0, 0, :1], what="a score of 2546: the output")
    half = torch.randn(1, 2, 40, 16, generator=rng).bfloat16()
    mask = torch.ones(1, 40, 40, dtype=torch.bool)
    out = expect_tensor(student.attend(half, half, half, mask), "attend(bfloat16)", torch.bfloat16)
    right = exact_attention(half, half, half, mask)
    expect_close(out, right, what="bfloat16: the output", atol=1e-4, rtol=BFLOAT16)


# ---- exercise 3: MHA to GQA ------------------------------------------------------------------


def pooled(student, weight, heads, groups):
    rows = weight.shape[0] // heads * groups
    value = student.pool_heads(weight, heads, groups)
    return expect_tensor(value, "pool_heads(...)", weight.dtype, (rows, *weight.shape[1:]))


def repeated(student, weight, heads, times):
    value = student.repeat_heads(weight, heads, times)
    shape = (weight.shape[0] * times, *weight.shape[1:])
    return expect_tensor(value, "repeat_heads(...)", weight.dtype, shape)


@exercise(
    "ex3",
    points=2,
    invariant="heads 1, 3 | 10, 20 of one row become 2 and 15; of two rows, row by row",
    cause="heads that are not neighbours are averaged, or the rows of a head with each other, or "
    "a sum is rounded to bfloat16 before it is divided",
)
def test_pooling_by_hand(student, rng):
    weight = torch.tensor([[1.0], [3], [10], [20]])
    for case, heads, groups, right in (
        (weight, 4, 2, [[2.0], [15.0]]),
        (weight, 4, 1, [[8.5]]),
        (weight, 4, 4, [[1.0], [3], [10], [20]]),
        (weight, 2, 1, [[5.5], [11.5]]),
        (weight[:, 0], 4, 2, [2.0, 15.0]),
    ):
        found = pooled(student, case, heads, groups).tolist()
        assert found == right, f"{heads} heads, {groups} groups: {found}, expected {right}"
    for rows, right, dtype in (
        # added one by one in bfloat16 the sum stays at 256
        ([256.0, 1, 1, 1], 64.75, torch.bfloat16),
        ([253.0, 7, 7], 89.0, torch.bfloat16),  # the sum, 267, is no bfloat16
        ([2048.0, 1, 1, 2], 513.0, torch.float16),  # 2048 + 1 is 2048 there
        ([60000.0, 51200], 55600.0, torch.float16),  # the sum is infinite there
    ):
        found = pooled(student, torch.tensor(rows)[:, None].to(dtype), len(rows), 1)
        right = torch.tensor([[right]]).to(dtype)
        expect_same(found, right, f"the mean of {rows} in {dtype}")


@exercise(
    "ex3",
    points=2,
    invariant="repeated heads leave grouped attention as it is, and pooling takes them back",
    cause="weight.repeat, which makes heads 0 1 0 1 of 0 0 1 1",
)
def test_repeating_by_hand(student, rng):
    weight = torch.tensor([[2.0], [15.0]])
    found = repeated(student, weight, 2, 2).tolist()
    assert found == [[2.0], [2.0], [15.0], [15.0]], f"2, 15 twice: {found}"
    found = repeated(student, weight, 1, 2).tolist()
    assert found == [[2.0], [15.0], [2.0], [15.0]], f"one head of two rows, twice: {found}"
    w = torch.randn(6, 5, generator=rng)
    back = pooled(student, repeated(student, w, 3, 4), 12, 3)
    expect_close(back, w, what="pooled again", rtol=8 * FLOAT32)
    expect_same(repeated(student, w, 3, 1), w, "every head once")


@exercise(
    "ex3",
    points=2,
    invariant="1, 3, 10, 20 in two groups: 52 of 510 is lost; what does not divide: ValueError",
    cause="a mean in place of a sum, the pooled weight compared with its own size, no square, or "
    "sizes that are not checked",
)
def test_share_that_is_lost(student, rng):
    weight = torch.tensor([[1.0], [3], [10], [20]])
    for heads, groups, right in ((4, 2, 52 / 510), (4, 4, 0.0), (2, 1, 185 / 510)):
        for case in (weight, weight[:, 0]):  # and a bias
            found = expect_number(student.pooled_error(case, heads, groups), "pooled_error(...)")
            what = f"{groups} of {heads} heads: the share"
            expect_close(float(found), right, what=what, rtol=1e-6)
    for call, what in (
        (lambda: student.pool_heads(weight, 4, 3), "3 groups of 4 heads"),
        (lambda: student.pool_heads(weight, 3, 3), "3 heads in 4 rows"),
        (lambda: student.repeat_heads(weight, 3, 2), "3 heads in 4 rows"),
        (lambda: student.repeat_heads(weight, 2, 0), "no repetition"),
        (lambda: student.pooled_error(weight, 4, 3), "3 groups of 4 heads"),
        (lambda: student.pooled_error(weight, 3, 3), "3 heads in 4 rows, in pooled_error"),
    ):
        expect_error(ValueError, call, what)


# ---- exercise 4: what fits -------------------------------------------------------------------


def batch(student, *args, **kwargs):
    value = expect_number(student.max_batch(*args, **kwargs), "max_batch(...)")
    assert isinstance(value, int), f"max_batch returned a {type(value).__name__}, not an int"
    return value


@exercise(
    "ex4",
    points=2,
    invariant="1000 bytes, 200 of them weights, 320 a sequence: 2 fit; and never fewer than 0",
    cause="rounded to nearest or up, a negative number, weights counted in bits or without "
    "`weight_bits`, metadata left out, or a window that is ignored",
)
def test_batches_by_hand(student, rng):
    config = SMALL | {"num_key_value_heads": 2}  # 32 bytes a token
    for memory, context, options, right in (
        (1000, 10, {}, 2),
        (840, 10, {}, 2),
        (839, 10, {}, 1),
        (150, 10, {}, 0),
        (1000, 10, {"weight_bits": 4}, 2),
        (1010, 10, {"weight_bits": 4}, 3),
        (1000, 10, {"bits": 4, "group_size": 8}, 5),
        (1000, 5, {}, 5),
    ):
        found = batch(student, config, 100, memory, context, **options)
        assert found == right, f"{memory} bytes, {context} tokens, {options}: {found}, not {right}"
    found = batch(student, config | {"sliding_window": 4}, 100, 1000, 10)
    assert found == 6, f"with a window of 4: {found} sequences, expected 6"
    room = int(5.2 * GiB)
    for weight_bits, right in ((4, 1), (4.15625, 0)):
        found = batch(student, LLAMA_7B, PARAMETERS, room, 4096, weight_bits)
        about = f"Llama-2-7B in {weight_bits} bits, 5.2 GiB, 4096 tokens"
        assert found == right, f"{about}: {found} sequences, expected {right}"


@exercise(
    "ex4",
    points=2,
    invariant="200 bytes of weights: tokens of 32 bytes are more from the 7th on, of 50 from the "
    "5th",
    cause="rounded up: where the division comes out even, the cache is then as large, not larger",
)
def test_crossover_by_hand(student, rng):
    config = SMALL | {"num_key_value_heads": 2}
    for changes, options, right in (
        ({}, {}, 7),
        ({"num_hidden_layers": 1, "num_key_value_heads": 1, "head_dim": 25 // 2}, {}, 5),
        ({"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 1, "head_dim": 25,
          "num_key_value_heads": 1}, {"bits": 8}, 5),
        ({}, {"weight_bits": 8}, 4),
        ({}, {"bits": 4, "group_size": 8}, 13),
    ):  # fmt: skip
        asked = config | changes
        found = expect_number(student.crossover(asked, 100, **options), "crossover(...)")
        about = f"100 parameters, {asked}, {options or '16 bits'}"
        assert isinstance(found, int), f"crossover returned a {type(found).__name__}, not an int"
        assert found == right, f"{about}: from token {found} on, expected {right}"
    found = student.crossover(LLAMA_7B, PARAMETERS, weight_bits=4.15625)
    assert found == 6678, f"Llama-2-7B in 4.15625 bits: from token {found} on, expected 6678"


@exercise(
    "ex4",
    points=2,
    invariant="the lever with the largest batch, the first of equal ones; no levers: ValueError",
    cause="the last of equal ones, changes of `context` or `config` that are left out, or levers "
    "that add up",
)
def test_levers_by_hand(student, rng):
    config = SMALL | {"num_key_value_heads": 2}
    levers = {
        "cache": {"bits": 4, "group_size": 8},  # 5
        "context": {"context": 5},  # 5
        "weights": {"weight_bits": 4},  # 2
    }
    asked = {"config": config, "parameters": 400, "memory": 1000, "context": 10}
    found = student.best_lever(**asked, levers=levers)  # 1, 1 and 2 sequences
    assert found == "weights", f"400 parameters: the best is 'weights', not {found!r}"
    more = levers | {"fewer parameters": {"parameters": 1}}  # 3 sequences
    found = student.best_lever(config, 400, 1000, 10, more)
    assert found == "fewer parameters", f"of {more} the best is 'fewer parameters', not {found!r}"
    for chosen, right in (
        (levers, "cache"),
        (dict(reversed(levers.items())), "context"),
        (
            levers | {"heads": {"config": config | {"num_key_value_heads": 1}, "context": 5}},
            "heads",
        ),
        (levers | {"memory": {"memory": 3000}}, "memory"),
        ({"more bits": {"bits": 32}, "nothing": {}}, "nothing"),
        (levers | {"fewer parameters": {"parameters": 1, "context": 3}}, "fewer parameters"),
        # a config takes the other's place: without the field every query head has a key head
        ({"all heads": {"config": SMALL}, "as it is": {}}, "as it is"),
    ):
        found = student.best_lever(config, 100, 1000, 10, chosen)
        assert found == right, f"of {chosen} the best is {right!r}, not {found!r}"
    expect_error(ValueError, lambda: student.best_lever(config, 100, 1000, 10, {}), "no levers")


# ---- exercise 5: codes in two directions -----------------------------------------------------


def encode(student, x, bits, group, direction):
    """(codes, scale, low) with the checks that every use needs."""
    value = student.quantize(x, bits, group, direction)
    codes, scale, low = expect_tuple(value, (torch.Tensor,) * 3, "quantize(...)")
    expect_tensor(codes, "codes", torch.uint8, tuple(x.shape))
    b, h, s, d = x.shape
    groups = (b, h, s // group, d) if direction == "channel" else (b, h, s, d // group)
    expect_tensor(scale, "scale", torch.float16, groups)
    expect_tensor(low, "low", torch.float16, groups)
    assert int(codes.max()) < 2**bits, f"{bits} bits: there is a code {int(codes.max())}"
    return codes, scale, low


def decode(student, codes, scale, low, direction):
    value = student.dequantize(codes, scale, low, direction)
    return expect_tensor(value, "dequantize(...)", torch.float32, tuple(codes.shape))


def bound(x, bits, group, direction):
    """Half a step of each value's group, and the rounding of s and m to float16. [B, H, S, d]"""
    dim = 2 if direction == "channel" else 3
    groups = x.double().unflatten(dim, (-1, group))
    low, high = groups.amin(dim + 1, keepdim=True), groups.amax(dim + 1, keepdim=True)
    span = high - low
    # s and m are rounded (2^-11), their sum too; below 2^-14 float16 has steps of 2^-24
    most = span / (2**bits - 1) / 2 * (1 + 1e-3) + 1.1 * FLOAT16 * (span + low.abs()) + 2.0**-16
    return most.expand_as(groups).reshape(x.shape)


@exercise(
    "ex5",
    points=2,
    invariant="2 bits: 5 6 7 8 along time have the codes 0 1 2 3, scale 1 and smallest value 5",
    cause="groups along the other direction, 0 in the range, 2^b steps, or floor in place of round",
)
def test_codes_by_hand(student, rng):
    column = torch.tensor([5.0, 6.0, 7.0, 8.0, -1.0, -1.0, 2.0, 1.0])
    x = torch.stack([column, 10 * column], dim=1)[None, None]  # [1, 1, 8, 2]
    right = [0, 1, 2, 3, 0, 0, 3, 2]
    for direction, case in (("channel", x), ("token", x.mT.contiguous())):
        codes, scale, low = encode(student, case, 2, 4, direction)
        if direction == "token":
            codes, scale, low = codes.mT, scale.mT, low.mT
        for name, seen, expected in (
            ("codes", codes, [right, right]),
            ("scales", scale, [[1, 1], [10, 10]]),
            ("smallest values", low, [[5, -1], [50, -10]]),
        ):
            seen = seen[0, 0].T.tolist()
            assert seen == expected, f"per {direction}: {name} {seen}, expected {expected}"
        back = decode(student, *encode(student, case, 2, 4, direction), direction)
        expect_same(back, case, f"{direction}: x_hat")


@exercise(
    "ex5",
    points=2,
    invariant="an error is at most half a step of the value's own group, in both directions",
    cause="a scale of the whole tensor, codes for a scale that is not the stored one, floor in "
    "place of round, codes that are not clamped, arithmetic in float16 or bfloat16",
)
def test_error_within_half_a_step(student, rng):
    x = torch.randn(2, 3, 16, 8, generator=rng)
    x[..., 3] *= 40
    for direction in ("channel", "token"):
        for bits, group, case in (
            (2, 8, x),
            (4, 4, x + 30),
            (8, 8, x + 2),
            (3, 4, x.bfloat16()),
            (8, 8, 3 * x / x.abs().max() + 1000),  # m is off by more than a step in float16
        ):
            codes, scale, low = encode(student, case, bits, group, direction)
            x_hat = decode(student, codes, scale, low, direction)
            limit = bound(case, bits, group, direction)
            error = (x_hat - case.double()).abs()
            expect_at_most(error, limit, f"per {direction}, {bits} bits: the error")
            dim = 2 if direction == "channel" else 3
            groups = case.double().unflatten(dim, (-1, group))
            right = (groups.amax(dim + 1) - groups.amin(dim + 1)) / (2**bits - 1)
            off = (scale.double() - right).abs()  # float16: 2^-11 of it, 2^-25 where it is tiny
            what = f"per {direction}: the distance of the scale from (max - min) / (2^b - 1)"
            expect_at_most(off, 2 * FLOAT16 * right + 2.0**-24, what)
            least = groups.amin(dim + 1).half()
            expect_same(low, least, f"per {direction}: `low`, the minimum in float16,")
            step, least = (p.double().repeat_interleave(group, dim) for p in (scale, low))
            inside = (case >= least) & (case <= least + (2**bits - 1) * step)
            limit = step * 0.502 + 16 * FLOAT32 * case.abs()
            what = f"per {direction}, {bits} bits: the error on the stored grid"
            expect_at_most(error[inside], limit[inside], what)
    others = [c for c in range(8) if c != 3]
    x_hat = decode(student, *encode(student, x, 2, 8, "channel"), "channel")
    calm = x.clone()
    calm[..., 3] /= 40
    again = decode(student, *encode(student, calm, 2, 8, "channel"), "channel")
    expect_same(x_hat[..., others], again[..., others], "channels beside a large one: x_hat")


@exercise(
    "ex5",
    points=2,
    invariant="a constant group comes back as it is, with scale 0; what does not divide: "
    "ValueError",
    cause="0 / 0 in a constant group, or a direction and a group size that are not checked",
)
def test_constant_groups_and_errors(student, rng):
    x = torch.randn(1, 2, 8, 4, generator=rng)
    x[0, 0] = 5.5
    x[0, 1, :4] = 0.0
    for direction in ("channel", "token"):
        far = torch.full_like(x, 3001.0)  # float16 has 3000 and 3002
        codes, scale, low = encode(student, far, 4, 4, direction)
        assert not codes.any(), (
            f"{direction}: groups of 3001 have codes {codes.unique().tolist()}, expected 0"
        )
        x_hat = decode(student, codes, scale, low, direction)
        expect_same(x_hat, far.half().float(), f"{direction}: groups of 3001, their `low`")
        codes, scale, low = encode(student, x, 4, 4, direction)
        for name, seen in (("scales", scale[0, 0]), ("codes", codes[0, 0])):
            seen = seen.unique().tolist()
            assert seen == [0], f"{direction}: constant groups have {name} {seen}, expected 0"
        x_hat = decode(student, codes, scale, low, direction)
        expect_same(x_hat[0, 0], x[0, 0], f"{direction}: constant groups")
        expect_same(x_hat[0, 1, :4], x[0, 1, :4], f"{direction}: groups of zeros")
    for group, direction in ((3, "channel"), (0, "token"), (8, "token"), (4, "row")):
        expect_error(
            ValueError,
            lambda g=group, way=direction: student.quantize(x, 4, g, way),
            f"groups of {group} per {direction} of [1, 2, 8, 4]",
        )


# ---- exercise 6: the cache with a window -----------------------------------------------------


def drive_window(student, settings, pieces, how):
    """Runs beside the student's code: returns (keys, values, bits held) after each piece.

    how: "spoil" overwrites what went in and came out, as others may do; "views" passes tensors
    that are not contiguous.
    """
    cache, out = student.QuantizedCache(*settings), []
    for k, v in pieces:
        k, v = k.clone(), v.clone()
        if how == "views":
            k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v))
        parts = cache.append(k, v)
        out.append((*(p.clone() for p in parts), cache.bits_held(), k.clone(), v.clone()))
        if how == "spoil":
            for tensor in (k, v, *parts):
                tensor.zero_()
    return out


def window(student, settings, pieces, how="plain"):
    """Results of `drive_window`, with the checks that every use needs."""
    results = student.drive(drive_window, settings, pieces, how)
    assert isinstance(results, list) and len(results) == len(pieces), "the cache stopped early"
    total, checked = 0, []
    for (k, v), result in zip(pieces, results, strict=True):
        total += k.shape[2]
        assert len(result) == 5, "append must return (keys, values)"
        keys, values, bits, *given = result
        assert isinstance(bits, int), f"bits_held returned a {type(bits).__name__}, not an int"
        expect_same(given[0], k, "k, which append must leave as it was,")
        expect_same(given[1], v, "v, which append must leave as it was,")
        shape = (*k.shape[:2], total, k.shape[3])
        expect_tensor(keys, "the keys", k.dtype, shape)
        expect_tensor(values, "the values", k.dtype, shape)
        checked.append((keys, values, bits))
    return checked


def rounded(x, bits, group, direction):
    """Codes and back in float64, with s and m as float16 holds them; made here."""
    dim = 2 if direction == "channel" else 3
    groups = x.double().unflatten(dim, (-1, group))
    low, high = groups.amin(dim + 1, keepdim=True), groups.amax(dim + 1, keepdim=True)
    scale, low = ((high - low) / (2**bits - 1)).half().double(), low.half().double()
    step = torch.where(scale > 0, scale, 1.0)
    codes = ((groups - low) / step).round().clamp(0, 2**bits - 1) * (scale > 0)
    return (codes * scale + low).reshape(x.shape)


def states(rng, tokens, d=8, heads=2, rows=1):
    """Keys and values [B, H, tokens, d] whose codes in 2 and 4 bits are far from ties.

    They are no numbers of float16: who keeps what waits in 16 bits returns others.
    """
    x = torch.randint(0, 16, (2, rows, heads, tokens, d), generator=rng).float()
    # an end of the grid in every 4 tokens and channels
    for i in range(tokens):
        x[..., i, i % 4 :: 4], x[..., i, (i + 1) % 4 :: 4] = 0.0, 15.0
    return x[0] / 4.1 - 2, x[1] / 8.2 + 1


@exercise(
    "ex6",
    points=2,
    invariant="G = 4, R = 8, tokens one by one: the 20th call returns 16 keys and 11 values from "
    "codes",
    cause="rounded before the call returns, values in blocks, keys in groups of G or never, or the "
    "newest tokens rounded",
)
def test_what_waits_by_hand(student, rng):
    k, v = states(rng, 20)
    pieces = [(k[:, :, i : i + 1], v[:, :, i : i + 1]) for i in range(20)]
    for count, (keys, values, _) in enumerate(window(student, (2, 4, 8), pieces), start=1):
        before = count - 1  # what the calls before have rounded
        for name, found, exact, old in (
            ("keys", keys, k, before // 8 * 8),
            ("values", values, v, max(0, before - 8)),
        ):
            came = exact[:, :, :count]
            same = (found == came).all(-1).all(1)[0].tolist()
            early = [i for i in range(old, count) if not same[i]]
            what = f"call {count}: of the {name} {before - old} wait and one is new"
            assert not early, f"{what}, but tokens {early} came back rounded"
            if old:
                right = rounded(came[:, :, :old], 2, 4, "channel" if name == "keys" else "token")
                changed = (right != came[:, :, :old]).any(-1).any(1)[0].tolist()
                late = [i for i in range(old) if same[i] and changed[i]]
                assert not late, f"call {count}: {name} of tokens {late} are due, and still exact"
                off = (found[:, :, :old] - right).abs().max()
                expect_at_most(off, 0.01, f"call {count}: the error of {name} from their codes")


def drive_nothing(student, settings):
    """Runs beside the student's code: the bits held before any token has come."""
    return student.QuantizedCache(*settings).bits_held()


def drive_bytes_kept(student, settings, k, v, prompt):
    """Runs beside the student's code: bytes of the tensors that a cache keeps alive.

    The first `prompt` tokens come at once, the others one by one.
    """
    import gc

    import torch

    def alive():
        gc.collect()
        found = [x for x in gc.get_objects() if type(x) is torch.Tensor]
        found = [x for x in found if x.layout == torch.strided]
        held = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in found}
        return sum(held.values())

    before = alive()
    cache = student.QuantizedCache(*settings)
    for a, b in [(0, prompt), *((i, i + 1) for i in range(prompt, k.shape[2]))]:
        shapes = [list(x.shape) for x in cache.append(k[:, :, a:b].clone(), v[:, :, a:b].clone())]
    return alive() - before, shapes


@exercise(
    "ex6",
    points=2,
    invariant="waiting(11, 4) is (3, 4); bits are counted: codes, 32 a group, 16 a waiting value",
    cause="metadata left out, waiting tokens left out or counted in the model's dtype, one block "
    "of keys for each call where a long prompt brings several, a formula that is wrong while fewer "
    "than R have come, or floats of old tokens that are kept beside their codes",
)
def test_bits_and_waiting(student, rng):
    for tokens, residual, right in (
        (11, 4, (3, 4)),
        (3, 4, (3, 3)),
        (8, 4, (0, 4)),
        (0, 4, (0, 0)),
    ):
        found = student.waiting(tokens, residual)
        expect_tuple(found, (int, int), f"waiting({tokens}, {residual})")
        assert tuple(found) == right, f"waiting({tokens}, {residual}) is {found}, expected {right}"
    k, v = states(rng, 11)
    for keys, old_keys in (("channel", 8), ("token", 7)):
        last = window(student, (2, 2, 4, keys), [(k, v)])[-1][2]
        codes, recent = (old_keys + 7) * 16, (22 - old_keys - 7) * 16
        right = codes * 2 + codes // 2 * 32 + recent * 16
        assert last == right, (
            f"11 tokens at once, keys per {keys}: {last} bits, expected {right} "
            f"({codes} codes, {codes // 2} groups, {recent} values that wait)"
        )
    nothing = (k[:, :, :0], v[:, :, :0])
    window(student, (2, 2, 4), [nothing, (k, v), nothing])  # T = 0
    first = student.drive(drive_nothing, (2, 2, 4))
    assert first == 0, f"before any token {first} bits are held, expected 0"
    k, v = k.bfloat16(), v.bfloat16()
    window(student, (2, 2, 4), [(k, v), (k[:, :, :1], v[:, :, :1])])  # dtypes stay
    k, v = (torch.randn(1, 2, 512, 32, generator=rng) for _ in range(2))
    kept, shapes = student.drive(drive_bytes_kept, (2, 32, 32), k, v, 448)
    assert shapes == [[1, 2, 512, 32]] * 2, f"512 tokens came, {shapes} were returned"
    came = 4 * (k.numel() + v.numel())
    expect_at_most(kept, 0.5 * came, f"of {came} bytes that came, those that the cache keeps")


@exercise(
    "ex6",
    points=2,
    invariant="a prompt comes back exactly; afterwards its old tokens do not change any more",
    cause="codes made again from decoded values, other directions, a tensor that is kept though "
    "it came in or went out (a view of it counts), or settings that are not checked",
)
def test_old_tokens_stay(student, rng):
    cuts = ((0, 10), (10, 11), (11, 17), (17, 23))
    for bits, shift, keys in ((2, 0, "channel"), (2, 0, "token"), (8, 1000, "token")):
        # far from 0 `low` is coarser than a step, and a second rounding moves the grid
        k, v = (torch.randn(1, 2, 23, 8, generator=rng) + shift for _ in range(2))
        pieces = [(k[:, :, a:b], v[:, :, a:b]) for a, b in cuts]
        out = window(student, (bits, 4, 4, keys), pieces)
        spoiled = window(student, (bits, 4, 4, keys), pieces, "spoil")[-1]
        for i, name in ((0, "keys"), (1, "values")):
            what = f"{name} after others set to 0 what went in and came out"
            expect_same(spoiled[i], out[-1][i], what)
        expect_same(out[0][0], k[:, :, :10], "a prompt: its keys")
        expect_same(out[0][1], v[:, :, :10], "a prompt: its values")
        for earlier, later in zip(out[1:], out[2:], strict=False):
            for i, name in ((0, "keys"), (1, "values")):
                a, b = earlier[i], later[i][:, :, : earlier[i].shape[2]]
                exact = (k, v)[i][:, :, : a.shape[2]]
                changed = (a != b) & (a != exact)
                assert not changed.any(), f"{int(changed.sum())} rounded {name} changed later"
    for settings in ((2, 4, 6), (2, 4, 0), (2, 4, 4, "row")):
        expect_error(
            ValueError,
            lambda s=settings: student.drive(drive_window, s, [], ""),
            f"settings {settings}",
        )
