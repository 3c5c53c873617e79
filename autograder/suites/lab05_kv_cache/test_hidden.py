"""Hidden tests of lab05.  Random configs, walks and states, all drawn from the test's own seed."""

import math
from fractions import Fraction

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

FLOAT32 = 2.0**-24
FLOAT16 = 2.0**-11
BFLOAT16 = 2.0**-8


def draw(rng, low, high):
    """An integer from low to high."""
    return int(torch.randint(low, high + 1, (), generator=rng))


# ---- exercise 1 ------------------------------------------------------------------------------


def random_config(rng):
    """(a config, the values that it keeps for a token, its window or None)."""
    layers, heads, size = draw(rng, 1, 90), 2 ** draw(rng, 0, 5), draw(rng, 1, 70)
    config = {"num_hidden_layers": layers, "num_attention_heads": heads}
    config["hidden_size"] = heads * size
    kv_heads, d = heads, size
    kind = draw(rng, 0, 2)
    if kind:
        kv_heads = 2 ** draw(rng, 0, heads.bit_length() - 1)
        config["num_key_value_heads"] = kv_heads
    else:
        config |= [{}, {"num_key_value_heads": None}][draw(rng, 0, 1)]
    if draw(rng, 0, 1):
        d = draw(rng, 1, 200)
        config["head_dim"], config["hidden_size"] = d, draw(rng, 1, 5000)
    else:
        config |= [{}, {"head_dim": None}][draw(rng, 0, 1)]
    values = 2 * layers * kv_heads * d
    if draw(rng, 0, 3) == 0:
        config["kv_lora_rank"], config["qk_rope_head_dim"] = draw(rng, 1, 600), draw(rng, 1, 90)
        values = layers * (config["kv_lora_rank"] + config["qk_rope_head_dim"])
    elif draw(rng, 0, 1):
        config["kv_lora_rank"] = None
    window = draw(rng, 1, 50) if draw(rng, 0, 1) else None
    if window is not None or draw(rng, 0, 1):
        config["sliding_window"] = window
    return config, values, window


@exercise(
    "ex1",
    points=4,
    invariant="layers x values x bits / 8, whatever fields the config has or lacks, or has as None",
    cause="a field that is there with the value None, a size of a head from the wrong number of "
    "heads",
)
def test_any_config(student, rng):
    for _ in range(60):
        config, values, _ = random_config(rng)
        bits = draw(rng, 1, 16)
        found = expect_number(student.bytes_per_token(config, bits), "bytes_per_token(...)")
        expect_close(float(found), values * bits / 8, what="bytes of a token", rtol=1e-12)


@exercise(
    "ex1",
    points=3,
    invariant="each value has 32 / G bits more; a window cuts each length, not their sum",
    cause="whole groups in place of 32 / G, metadata of 16 bits, or a window on the total",
)
def test_metadata_and_windows_of_any_config(student, rng):
    for _ in range(40):
        config, values, window = random_config(rng)
        bits, group = draw(rng, 1, 8), draw(rng, 1, 130)
        lengths = [draw(rng, 0, 100) for _ in range(draw(rng, 0, 5))]
        kept = sum(n if window is None else min(n, window) for n in lengths)
        right = float(kept * values * (bits + Fraction(32, group)) / 8)
        found = expect_number(student.cache_bytes(config, lengths, bits, group), "cache_bytes(...)")
        expect_close(float(found), right, what="bytes of the caches", rtol=1e-12)
        found = student.cache_bytes(config, lengths, bits=bits)
        expect_close(float(found), kept * values * bits / 8, what="without groups", rtol=1e-12)


@exercise(
    "ex1",
    points=2,
    invariant="bits and groups below 1 and negative lengths raise ValueError; 1 and 0 do not",
    cause="a check with <= in place of <, or one that only the other function makes",
)
def test_what_is_refused_and_what_is_not(student, rng):
    config, values, _ = random_config(rng)
    expect_close(float(student.bytes_per_token(config, 1, 1)), values * 33 / 8, what="1 bit, G = 1")
    expect_close(float(student.cache_bytes(config, [0, 0])), 0.0, what="empty sequences")
    for call, what in (
        (lambda: student.bytes_per_token(config, -4), "negative bits"),
        (lambda: student.bytes_per_token(config, 0, 32), "no bits"),
        (lambda: student.bytes_per_token(config, 4, -32), "a negative group"),
        (lambda: student.cache_bytes(config, [5], 4, 0), "groups of 0"),
        (lambda: student.cache_bytes(config, [5], 0), "no bits in cache_bytes"),
        (lambda: student.cache_bytes(config, [-5, 5]), "lengths that add up to 0"),
    ):
        expect_error(ValueError, call, what)


# ---- exercise 2 ------------------------------------------------------------------------------


def drive_cache(student, steps, spoil):
    """Runs beside the student's code: a cache that is fed; what it returns after each step.

    spoil: what goes in and comes out is overwritten afterwards, as others may do.
    """
    cache, out = student.RowCache(), []
    for step in steps:
        if len(step) == 1:
            cache.truncate(list(step[0]))
            out.append(([], [], [], list(cache.lengths), [], []))
            continue
        k, v, counts = step[0].clone(), step[1].clone(), list(step[2])
        parts = cache.append(k, v, counts)
        out.append((*(p.clone() for p in parts), list(cache.lengths), k.clone(), v.clone()))
        if spoil:
            for tensor in (k, v, *parts):
                tensor.zero_()
    return out


def appended(result, step, history, what):
    """Checks one append against `history`, a list of (k [Hkv, n, d], v) for each row."""
    assert len(result) == 6, f"{what}: append must return (keys, values, mask)"
    keys, values, mask, lengths, *given = result
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


def follow(student, steps, spoil=False):
    """Runs the steps and checks every one against rows kept here; returns the results."""
    results = student.drive(drive_cache, steps, spoil)
    assert isinstance(results, list) and len(results) == len(steps), "the cache stopped early"
    first = steps[0][0]
    history = [(first[0, :, :0], first[0, :, :0])] * first.shape[0]
    for number, (step, result) in enumerate(zip(steps, results, strict=True), start=1):
        if len(step) == 1:
            history = [(k[:, :n], v[:, :n]) for (k, v), n in zip(history, step[0], strict=True)]
            right = [k.shape[1] for k, _ in history]
            assert result[3] == right, f"step {number}: truncated to {result[3]}, expected {right}"
        else:
            history = appended(result, step, history, f"step {number}")
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


def walk(rng, rows, heads, d, steps, dtype=torch.float32):
    """Random appends and truncations; the first is an append."""
    made, lengths = [], [0] * rows
    for number in range(steps):
        if number and draw(rng, 0, 3) == 0:
            cut = [draw(rng, 0, n + 2) for n in lengths]
            lengths = [min(n, c) for n, c in zip(lengths, cut, strict=True)]
            made.append((cut,))
            continue
        t = draw(rng, 1, 5)
        counts = [draw(rng, 0, t) for _ in range(rows)]
        if not number:
            counts[draw(rng, 0, rows - 1)] = t
        lengths = [n + c for n, c in zip(lengths, counts, strict=True)]
        made.append(new_tokens(rng, (rows, heads, t, d), counts, dtype))
    return made


@exercise(
    "ex2",
    points=3,
    invariant="after any appends and truncations each row holds its own tokens, and sees those",
    cause="tokens of a row that was cut back come back, a length that follows the longest row, "
    "slots that are not shrunk",
)
def test_random_walks(student, rng):
    for rows, heads, d, dtype in ((1, 1, 2, torch.float32), (3, 2, 4, torch.bfloat16)):
        for _ in range(4):
            follow(student, walk(rng, rows, heads, d, 8, dtype))


@exercise(
    "ex2",
    points=2,
    invariant="the cache keeps tensors of its own, and a second cache is another one",
    cause="a view of what was passed in or handed out is kept, or lists that all caches share",
)
def test_tensors_of_its_own(student, rng):
    for _ in range(3):
        full = new_tokens(rng, (2, 1, 3, 2), [3, 3])
        follow(student, [full, *walk(rng, 2, 1, 2, 4)], spoil=True)
        follow(student, walk(rng, 3, 2, 4, 8), spoil=True)
        follow(student, walk(rng, 2, 1, 2, 3), spoil=True)


@exercise(
    "ex2",
    points=2,
    invariant="attention against float64: any mask, grouped heads, float32 and bfloat16",
    cause="heads in another order, sums in bfloat16, scores without 1 / sqrt(d), a mask on all "
    "rows",
)
def test_attention_against_float64(student, rng):
    for heads, kv_heads, d in ((4, 4, 8), (6, 2, 4), (4, 1, 16)):
        for dtype, unit in ((torch.float32, 64 * FLOAT32), (torch.bfloat16, BFLOAT16)):
            q = torch.randn(2, heads, 3, d, generator=rng).to(dtype)
            k, v = (torch.randn(2, kv_heads, 7, d, generator=rng).to(dtype) for _ in range(2))
            mask = torch.rand(2, 3, 7, generator=rng) < 0.5
            mask[1, 2] = False
            for scale in (1, 8):
                out = student.attend(q, scale * k, v, mask)
                expect_tensor(out, "attend(...)", dtype, tuple(q.shape))
                right = exact_attention(q, scale * k, v, mask)
                expect_close(out, right, what="the output", atol=4e-5, rtol=unit)


@exercise(
    "ex2",
    points=2,
    invariant="counts from 0 to T for every row, lengths for every row; others raise ValueError",
    cause="only one side of a limit is checked, or a shape that is compared in part",
)
def test_what_does_not_fit(student, rng):
    one = new_tokens(rng, (2, 2, 3, 4), [3, 0])
    follow(student, [one, new_tokens(rng, (2, 2, 3, 4), [0, 3])])
    k, v, _ = one
    for bad, what in (
        ((k, v, [3, -1]), "-1 tokens"),
        ((k, v, [0, 4]), "4 of 3 tokens"),
        ((k, v, [1, 1, 1]), "three counts for two rows"),
        ((k[:, :1], v[:, :1], [1, 1]), "another number of heads"),
        ((k[..., :2], v[..., :2], [1, 1]), "another size of a head"),
        ((k, v[..., :2], [1, 1]), "values of another size"),
        (([1, 1, 1],), "three lengths for two rows"),
        (([1, -3],), "a length of -3"),
    ):
        for steps in ([one, bad], [one, one, bad]):
            expect_error(ValueError, lambda s=steps: student.drive(drive_cache, s, False), what)
    expect_error(ValueError, lambda: student.drive(drive_cache, [(k, v, [4, 0])], False), "first")
    empty = student.drive(drive_cache, [([],)], False)
    assert empty[0][3] == [], "an empty cache has lengths"


# ---- exercise 3 ------------------------------------------------------------------------------


@exercise(
    "ex3",
    points=3,
    invariant="row i of group g is the mean of rows i of its heads, for weights and biases",
    cause="heads apart by the number of groups, or the dimensions of a group and its heads swapped",
)
def test_pooling_against_a_loop(student, rng):
    for _ in range(12):
        groups, share, d = draw(rng, 1, 4), draw(rng, 1, 4), draw(rng, 1, 5)
        heads = groups * share
        for shape in ((heads * d,), (heads * d, 3)):
            for weight in (torch.randn(shape, generator=rng), torch.ones(shape)):
                found = student.pool_heads(weight, heads, groups)
                expect_tensor(found, "pool_heads(...)", torch.float32, (groups * d, *shape[1:]))
                rows = [
                    sum(weight[(g * share + j) * d + i].double() for j in range(share)) / share
                    for g in range(groups)
                    for i in range(d)
                ]
                right = torch.stack(rows)
                expect_close(found, right, what="a pooled weight", atol=1e-6, rtol=1e-6)


@exercise(
    "ex3",
    points=2,
    invariant="head h of the repeated weight is head h // times, exactly, in any dtype",
    cause="weight.repeat, rows in place of heads, or a detour through another dtype",
)
def test_repeating_against_a_loop(student, rng):
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for _ in range(4):
            heads, times, d = draw(rng, 1, 4), draw(rng, 1, 4), draw(rng, 1, 4)
            for shape in ((heads * d,), (heads * d, 3)):
                weight = torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
                found = student.repeat_heads(weight, heads, times)
                rows = [weight[h // times * d + i] for h in range(heads * times) for i in range(d)]
                expect_same(found, torch.stack(rows), "a repeated weight")


@exercise(
    "ex3",
    points=2,
    invariant="means of bfloat16 heads are taken in float32; dtypes stay, float64 too",
    cause="mean() in bfloat16, which keeps 8 bits of every sum, or a result that stays in float32",
)
def test_dtypes(student, rng):
    for heads in (2, 3, 6, 8):
        weight = (torch.randn(heads * 3, 5, generator=rng) + 4).bfloat16()
        found = student.pool_heads(weight, heads, 1)
        expect_tensor(found, "pool_heads(bfloat16)", torch.bfloat16, (3, 5))
        right = weight.double().view(heads, 3, 5).mean(0)
        # the last bit where the exact mean is not near a tie, which float32 may round either way
        grid = 2.0 ** (right.abs().log2().floor() - 7)
        near = ((right / grid - (right / grid).floor()) - 0.5).abs() < 1e-3
        wrong = (found.double() - right).abs() > 0.5 * grid * (1 + 1e-3)
        assert not (wrong & ~near).any(), "means of bfloat16 heads are off by more than a rounding"
    weight = torch.randn(4, 2, generator=rng, dtype=torch.float64)
    found = expect_tensor(student.pool_heads(weight, 2, 1), "pool_heads(float64)", torch.float64)
    right = (weight[:2] + weight[2:]) / 2
    expect_close(found, right, what="float64 heads", rtol=1e-14, atol=1e-15)


@exercise(
    "ex3",
    points=2,
    invariant="the share against float64, 0 for equal heads; whatever does not divide: ValueError",
    cause="a root that was taken or left out, means over rows, or a check of one of the two sizes",
)
def test_shares_against_float64(student, rng):
    for groups, share, d in ((2, 3, 2), (1, 4, 3), (3, 1, 2)):
        heads = groups * share
        weight = torch.randn(heads * d, 4, generator=rng) + torch.randn(1, 4, generator=rng)
        found = expect_number(student.pooled_error(weight, heads, groups), "pooled_error(...)")
        double = float(student.pooled_error(weight.double(), heads, groups))
        expect_close(double, found, what="the share of a float64 weight", rtol=1e-4, atol=1e-12)
        by_head = weight.double().view(groups, share, d, 4)
        lost = (by_head - by_head.mean(1, keepdim=True)).square().sum()
        right = (lost / weight.double().square().sum()).item()
        expect_close(float(found), right, what="the share", rtol=1e-4, atol=1e-12)
        equal = weight[:d].repeat(heads, 1)
        found = float(student.pooled_error(equal, heads, groups))
        expect_at_most(found, 1e-12, "equal heads: the share")
    for heads, groups in ((6, 4), (5, 5), (0, 1), (6, 0), (6, -2), (4, 2)):
        expect_error(
            ValueError,
            lambda h=heads, g=groups: student.pool_heads(torch.ones(6, 2), h, g),
            f"{groups} groups of {heads} heads in 6 rows",
        )
    for heads, times in ((4, 2), (0, 2), (2, -1)):
        expect_error(
            ValueError,
            lambda h=heads, t=times: student.repeat_heads(torch.ones(6, 2), h, t),
            f"{heads} heads {times} times",
        )


# ---- exercise 4 ------------------------------------------------------------------------------


def per_token_bits(values, bits, group):
    return values * (bits + (Fraction(32, group) if group else 0))


@exercise(
    "ex4",
    points=4,
    invariant="that many sequences fit and one more does not, exactly; 0 where the weights do not",
    cause="a float that loses whole bytes, rounding up, windows or metadata left out",
)
def test_one_more_does_not_fit(student, rng):
    for _ in range(40):
        config, values, window = random_config(rng)
        parameters, context = draw(rng, 0, 10**6), draw(rng, 1, 100)
        bits, group = draw(rng, 1, 16), [None, 4, 32, 64][draw(rng, 0, 3)]
        weight_bits = [16, 8, 4, 4.15625][draw(rng, 0, 3)]
        kept = context if window is None else min(context, window)
        each = kept * per_token_bits(values, bits, group)
        weights = parameters * Fraction(weight_bits)
        fits = draw(rng, 0, 30)
        memory = math.ceil((weights + fits * each) / 8)  # just so many
        right = math.floor((8 * memory - weights) / each)
        for room, expected in ((memory, right), (int(weights // 8) // 2, 0)):
            found = student.max_batch(config, parameters, room, context, weight_bits, bits, group)
            assert expect_number(found, "max_batch(...)") == expected or (
                room != memory and weights == 0
            ), f"{found} sequences, expected {expected}"
            assert isinstance(found, int), "the number of sequences is no int"


@exercise(
    "ex4",
    points=2,
    invariant="at the crossover the cache is larger than the weights, a token earlier it is not",
    cause="ceil where the division comes out even, or bits of weights or cache that are left out",
)
def test_crossover_from_both_sides(student, rng):
    for _ in range(40):
        config, values, window = random_config(rng)
        config.pop("sliding_window", None)
        bits, group = [16, 8, 4][draw(rng, 0, 2)], [None, 32][draw(rng, 0, 1)]
        each = per_token_bits(values, bits, group)
        even = draw(rng, 0, 1)
        weight_bits = 1 if even else [16, 4][draw(rng, 0, 1)]
        parameters = int(each * draw(rng, 1, 9)) if even else draw(rng, 1, 10**7)
        n = student.crossover(config, parameters, weight_bits, bits, group)
        assert isinstance(expect_number(n, "crossover(...)"), int), "the crossover is no int"
        weights = parameters * weight_bits
        assert n * each > weights >= (n - 1) * each, "the crossover is not where the cache passes"


@exercise(
    "ex4",
    points=3,
    invariant="the first of the largest batches, whatever arguments a lever changes",
    cause="levers that act on top of each other, arguments that a lever may not change, the last "
    "of equal ones, or a search that wants a batch above that without levers",
)
def test_levers_against_brute_force(student, rng):
    for _ in range(15):
        config, values, window = random_config(rng)
        other, other_values, other_window = random_config(rng)
        parameters, context = draw(rng, 1, 10**5), draw(rng, 2, 100)
        memory = int(2 * parameters + draw(rng, 0, 20) * context * values * 2)
        levers = {
            "a": {"weight_bits": 4},
            "b": {"bits": 4, "group_size": 16},
            "c": {"context": context // 2},
            "d": {"config": other},
            "e": {"memory": memory * 2, "parameters": parameters * 2},
            "f": {"bits": 32},
            "g": {},
        }
        order = torch.randperm(len(levers), generator=rng).tolist()
        names = [list(levers)[i] for i in order][: draw(rng, 1, 7)]
        counts = {}
        for name in names:
            new = levers[name]
            mine = (other_values, other_window) if name == "d" else (values, window)
            tokens = new.get("context", context)
            kept = tokens if mine[1] is None else min(tokens, mine[1])
            each = kept * per_token_bits(mine[0], new.get("bits", 16), new.get("group_size"))
            left = 8 * new.get("memory", memory)
            left -= new.get("parameters", parameters) * new.get("weight_bits", 16)
            counts[name] = max(0, math.floor(left / each))
        right = max(counts, key=counts.get)
        chosen = {name: levers[name] for name in names}
        found = student.best_lever(config, parameters, memory, context, chosen)
        assert found == right, "another lever is better, or the first of equal ones"
    none = {"x": {"memory": 1}, "y": {"memory": 2}}
    assert student.best_lever(config, 10**6, 10, 5, none) == "x", "no lever helps: the first"


# ---- exercise 5 ------------------------------------------------------------------------------


def encode(student, x, bits, group, direction):
    """(codes, scale, low) with the checks that every use needs."""
    return checked(student.quantize(x, bits, group, direction), x, bits, group, direction)


def checked(value, x, bits, group, direction):
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
    points=3,
    invariant="every value within half a step of its group, for 1 to 8 bits in both directions",
    cause="groups along the wrong dimension, a range of a neighbour, codes beyond 2^b - 1",
)
def test_errors_against_float64(student, rng):
    for bits in range(1, 9):
        for direction, group in (("channel", 6), ("token", 4), ("channel", 1), ("token", 8)):
            x = torch.randn(2, 2, 12, 8, generator=rng)
            x = x * torch.logspace(-1, 2, 8) + torch.randn(1, 2, 12, 1, generator=rng) * 20
            x_hat = decode(student, *encode(student, x, bits, group, direction), direction)
            error = (x_hat - x.double()).abs()
            expect_at_most(error, bound(x, bits, group, direction), "an error")


@exercise(
    "ex5",
    points=2,
    invariant="codes belong to the scale and smallest value that are stored in float16",
    cause="codes from the float32 scale: at 8 bits the stored one moves the last by up to a tenth",
)
def test_codes_belong_to_what_is_stored(student, rng):
    for direction, group in (("channel", 8), ("token", 16)):
        x = torch.rand(1, 2, 16, 16, generator=rng) * 3 + 1000  # m is off by up to a quarter
        codes, scale, low = encode(student, x, 8, group, direction)
        dim = 2 if direction == "channel" else 3
        groups = x.double().unflatten(dim, (-1, group))
        s, m = scale.double().unsqueeze(dim + 1), low.double().unsqueeze(dim + 1)
        spans = groups.amax(dim + 1) - groups.amin(dim + 1)
        expect_at_most(
            (scale * 255 - spans).abs(), 0.01, "a stored scale times 255, off its range,"
        )
        exact = ((groups - m) / s).clamp(0, 255).reshape(x.shape)
        expect_at_most((codes.double() - exact).abs(), 0.5 + 1e-3, "a code, off its exact value,")
        back = decode(student, codes, scale, low, direction)
        right = (codes.double().unflatten(dim, (-1, group)) * s + m).reshape(x.shape)
        expect_close(back, right, what="x_hat of these codes", rtol=4 * FLOAT32)


@exercise(
    "ex5",
    points=2,
    invariant="constant and tiny ranges come back as their smallest value, bfloat16 in float32",
    cause="a division by a scale that is 0 in float16, differences in bfloat16, results in "
    "bfloat16",
)
def test_groups_without_range_and_bfloat16(student, rng):
    for direction in ("channel", "token"):
        for value in (0.0, -3.0, 7.25):
            x = torch.full((1, 1, 8, 8), value)
            x[0, 0, 3, 5] += 1e-8 if value == 0 else 0.0
            codes, scale, low = encode(student, x, 2, 8, direction)
            assert not codes.any() and not scale.any(), "a group without range has codes or a scale"
            back = decode(student, codes, scale, low, direction)
            expect_close(back, torch.full_like(x, value), what="a constant group", atol=1e-6)
        x = (torch.randn(2, 1, 8, 8, generator=rng) * 3 + 50).bfloat16()
        back = decode(student, *encode(student, x, 8, 8, direction), direction)
        error = (back - x.double()).abs()
        expect_at_most(error, bound(x, 8, 8, direction), "bfloat16: an error")


def drive_transposed(student, x, bits, group, direction):
    """Runs beside the student's code: states that are not contiguous; returns (stored, x_hat)."""
    stored = student.quantize(x.transpose(1, 2), bits, group, direction)
    return stored, student.dequantize(*stored, direction)


@exercise(
    "ex5",
    points=2,
    invariant="states may be views, groups must divide, directions are the two that are named",
    cause="view() on a tensor that is not contiguous, S checked where d counts, any other string",
)
def test_views_and_what_does_not_divide(student, rng):
    x = torch.randn(2, 12, 3, 8, generator=rng)
    for direction, group in (("channel", 4), ("token", 8)):
        y = x.transpose(1, 2)
        stored, back = student.drive(drive_transposed, x, 4, group, direction)
        checked(stored, y, 4, group, direction)
        expect_tensor(back, "x_hat of a view", torch.float32, (2, 3, 12, 8))
        expect_at_most((back - y.double()).abs(), bound(y, 4, group, direction), "an error")
    y = x.transpose(1, 2).contiguous()
    for group, direction in ((8, "channel"), (12, "token"), (-4, "channel"), (0, "channel"),
                             (4, "Channel"), (4, "time"), (4, "")):  # fmt: skip
        expect_error(
            ValueError,
            lambda g=group, way=direction: student.quantize(y, 4, g, way),
            f"groups of {group} per {direction!r} of [2, 3, 12, 8]",
        )


# ---- exercise 6 ------------------------------------------------------------------------------


def drive_window(student, settings, pieces, spoil):
    """Runs beside the student's code: returns (keys, values, bits held) after each piece."""
    cache, out = student.QuantizedCache(*settings), []
    for k, v in pieces:
        k, v = k.clone(), v.clone()
        parts = cache.append(k, v)
        out.append((*(p.clone() for p in parts), cache.bits_held(), k.clone(), v.clone()))
        if spoil:
            for tensor in (k, v, *parts):
                tensor.zero_()
    return out


def window(student, settings, pieces, spoil=False):
    """Results of `drive_window`, with the checks that every use needs."""
    results = student.drive(drive_window, settings, pieces, spoil)
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
    """Keys and values [B, H, tokens, d] whose codes in 2 and 4 bits are far from ties."""
    x = torch.randint(0, 16, (2, rows, heads, tokens, d), generator=rng).float()
    # an end of the grid in every 4 tokens and channels
    for i in range(tokens):
        x[..., i, i % 4 :: 4], x[..., i, (i + 1) % 4 :: 4] = 0.0, 15.0
    return x[0] / 4 - 2, x[1] / 8 + 1


def lengths_of(rng, total):
    """Random pieces that add up to `total`."""
    cuts = sorted({0, total, *(draw(rng, 1, total - 1) for _ in range(draw(rng, 1, 9)))})
    return list(zip(cuts, cuts[1:], strict=False))


@exercise(
    "ex6",
    points=3,
    invariant="after every call: keys to the last whole R before it rounded, the rest exact",
    cause="what is due counted without the tokens that waited, or from the pieces that came",
)
def test_which_tokens_are_exact(student, rng):
    for group, residual, keys in ((2, 4, "channel"), (4, 8, "channel"), (4, 4, "token")):
        k, v = (torch.randn(2, 2, 30, 8, generator=rng) for _ in range(2))
        ends = lengths_of(rng, 30)
        pieces = [(k[:, :, a:b], v[:, :, a:b]) for a, b in ends]
        for (before, after), out in zip(
            ends, window(student, (2, group, residual, keys), pieces), strict=True
        ):
            late = max(0, before - residual)
            old = (before // residual * residual if keys == "channel" else late, late)
            for found, exact, n in zip(out[:2], (k, v), old, strict=True):
                expect_same(found[:, :, n:], exact[:, :, n:after], "the tokens that wait")
                changed = (found[:, :, :n] != exact[:, :, :n]).any(-1)
                assert changed.all(), "tokens that are due are still exact"


@exercise(
    "ex6",
    points=3,
    invariant="rounded tokens are those of the test's own codes, whatever pieces they came in",
    cause="groups that begin elsewhere, values per channel, or codes of values that were rounded "
    "once",
)
def test_rounded_tokens_against_own_codes(student, rng):
    for keys, dtype in (("channel", torch.float32), ("token", torch.float32),
                        ("channel", torch.bfloat16)):  # fmt: skip
        k, v = (x.to(dtype) for x in states(rng, 28, rows=2))
        pieces = [(k[:, :, a:b], v[:, :, a:b]) for a, b in lengths_of(rng, 28)]
        nothing = (k[:, :, :0], v[:, :, :0])
        out = window(student, (2, 4, 8, keys), [*pieces, nothing])[-1]
        for found, exact, n, way in zip(
            out[:2], (k, v), (24 if keys == "channel" else 20, 20), (keys, "token"), strict=True
        ):
            right = rounded(exact[:, :, :n], 2, 4, way)
            unit = 1e-5 if dtype == torch.float32 else 4 * BFLOAT16
            # a value halfway between two codes may go either way
            off = (found[:, :, :n].double() - right).abs()
            expect_at_most(off, unit * (1 + right.abs()), "a rounded value, off the test's own,")


@exercise(
    "ex6",
    points=2,
    invariant="bits held are those of codes, groups and waiting tokens; waiting() says how many",
    cause="32 bits for each piece and not each group, float32 counted as 32, batch or heads left "
    "out",
)
def test_bits_held_by_counting(student, rng):
    for group, residual, keys, bits in (
        (2, 4, "channel", 3),
        (4, 8, "token", 8),
        (1, 3, "channel", 1),
        (1, 1, "channel", 2),
    ):
        k, v = (torch.randn(2, 3, 25, 8, generator=rng) for _ in range(2))
        ends = lengths_of(rng, 25)
        pieces = [(k[:, :, a:b], v[:, :, a:b]) for a, b in ends]
        for (_, total), out in zip(
            ends, window(student, (bits, group, residual, keys), pieces), strict=True
        ):
            waiting = [total % residual if keys == "channel" else min(total, residual)]
            waiting += [min(total, residual)]
            right = sum(48 * (n * 16 + (total - n) * (bits + 32 / group)) for n in waiting)
            assert out[2] == right, "the bits held are not those of what is kept"
            found = student.waiting(total, residual)
            assert tuple(found) == (total % residual, min(total, residual)), "waiting() is wrong"


@exercise(
    "ex6",
    points=1,
    invariant="the cache keeps tensors of its own; settings that do not fit raise ValueError",
    cause="a view of what came in or was handed out, or a check of the multiple alone",
)
def test_own_tensors_and_settings(student, rng):
    k, v = states(rng, 20)
    pieces = [(k[:, :, a:b], v[:, :, a:b]) for a, b in lengths_of(rng, 20)]
    plain = window(student, (4, 4, 4), pieces)
    spoiled = window(student, (4, 4, 4), pieces, spoil=True)
    for a, b in zip(plain, spoiled, strict=True):
        expect_same(b[0], a[0], "keys after others changed their tensors")
        expect_same(b[1], a[1], "values after others changed their tensors")
    for settings in ((2, 0, 4), (2, 4, -4), (2, 8, 4), (2, -2, 4), (2, 4, 4, "value"), (2, 3, 4)):
        expect_error(
            ValueError,
            lambda s=settings: student.drive(drive_window, s, [], False),
            f"settings {settings}",
        )
