"""Hidden tests of lab05.  Random configs, walks and states, all drawn from the test's own seed."""

import itertools
import math
from collections import Counter
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
from efflib.lab.again import again, drawn_ways, held, refused
from efflib.lab.cases import every_pair

FLOAT32 = 2.0**-24
FLOAT16 = 2.0**-11
BFLOAT16 = 2.0**-8
SLIDING, FULL = "sliding_attention", "full_attention"
MISSING = "missing"
LLAMA_7B = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
PARAMETERS = 6_738_415_616  # of LLAMA_7B


def draw(rng, low, high):
    """An integer from low to high."""
    return int(torch.randint(low, high + 1, (), generator=rng))


# ---- exercise 1 ------------------------------------------------------------------------------


def random_config(rng):
    """(a config, the values that all its layers keep for a token)."""
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
    if draw(rng, 0, 1):
        kinds = [(FULL, SLIDING)[draw(rng, 0, 1)] for _ in range(layers)]
        config["layer_types"] = kinds if draw(rng, 0, 3) else None
    return config, values


def kept_values(config, values, length):
    """The values of a sequence of so many tokens, layer by layer. values: of a token in all."""
    layers, window = config["num_hidden_layers"], config.get("sliding_window")
    kinds = config.get("layer_types") or [SLIDING] * layers
    each, total = values // layers, 0
    for kind in kinds:
        total += each * (length if window is None or kind == FULL else min(length, window))
    return total


@exercise(
    "ex1",
    points=3,
    invariant="layers x values x bits / 8, whatever fields the config has or lacks, or has as None",
    cause="a field that is there with the value None, a size of a head from the wrong number of "
    "heads",
)
def test_any_config(student, rng):
    for bits in (1, 32, 33, 64, *(draw(rng, 1, 32) for _ in range(56))):
        config, values = random_config(rng)
        found = expect_number(student.bytes_per_token(config, bits), "bytes_per_token(...)")
        expect_close(float(found), values * bits / 8, what="bytes of a token", rtol=1e-12)
    plain = {"num_hidden_layers": 3, "hidden_size": 8, "num_attention_heads": 4}
    for size in (1, 128, 256, 512, 4096):
        found = student.bytes_per_token(plain | {"head_dim": size})
        expect_close(float(found), 48.0 * size, what=f"heads of {size}: bytes", rtol=1e-12)
    wide = {"num_hidden_layers": 1, "hidden_size": 2**17, "num_attention_heads": 2**10}
    found = float(student.bytes_per_token(wide))
    expect_close(found, 2.0**19, what="bytes of a token, of 1024 heads", rtol=1e-12)
    fields = ("kv_lora_rank", "qk_rope_head_dim", "head_dim", "num_key_value_heads")
    for names in (*((name,) for name in fields), fields[:2], fields):
        found = student.bytes_per_token(plain | dict.fromkeys(names))
        expect_close(float(found), 96.0, what="bytes of a token, fields that are None", rtol=1e-12)


@exercise(
    "ex1",
    points=2.5,
    invariant="each value has 32 / G bits more; a window cuts each length in the layers that have "
    "it, not their sum",
    cause="whole groups in place of 32 / G, metadata of 16 bits, a window on the total or on all "
    "layers",
)
def test_metadata_and_windows_of_any_config(student, rng):
    def cached(config, values, lengths, bits, group):
        kept = sum(kept_values(config, values, n) for n in lengths)
        right = float(kept * (bits + (Fraction(32, group) if group else 0)) / 8)
        found = expect_number(student.cache_bytes(config, lengths, bits, group), "cache_bytes(...)")
        expect_close(float(found), right, what="bytes of the caches", rtol=1e-12)

    for _ in range(40):
        config, values = random_config(rng)
        lengths = [draw(rng, 0, 100) for _ in range(draw(rng, 0, 5))]
        cached(config, values, lengths, draw(rng, 1, 32), draw(rng, 1, 130))
        cached(config, values, lengths, draw(rng, 1, 32), None)
    # sizes of real models: windows of 4096 tokens, contexts of a million, 24 layers in turn
    config = {"num_hidden_layers": 24, "hidden_size": 2880, "num_attention_heads": 64}
    config |= {"num_key_value_heads": 8, "head_dim": 64, "sliding_window": 4096}
    for group in (1, 128, 129, 4096):
        found = student.bytes_per_token(config, 2, group)
        right = float(24 * 2 * 8 * 64 * (2 + Fraction(32, group)) / 8)
        expect_close(float(found), right, what="bytes of a token", rtol=1e-12)
    for kinds in (None, [SLIDING, FULL] * 12, [FULL] * 24, [SLIDING] * 24):
        for lengths in ([4095, 4096, 4097], [10**6, 0, 1], [131_072] * 400):
            cached(config | {"layer_types": kinds}, 24 * 2 * 8 * 64, lengths, 4, 32)
            every = config | {"layer_types": kinds, "sliding_window": None}
            cached(every, 24 * 2 * 8 * 64, lengths, 16, 32)


@exercise(
    "ex1",
    points=2,
    invariant="bits and groups below 1, negative lengths and layers that do not fit raise "
    "ValueError; 1 and 0 do not",
    cause="a check with <= in place of <, one that only the other function makes, or one that "
    "comes after what needs no check",
)
def test_what_is_refused_and_what_is_not(student, rng):
    config, values = random_config(rng)
    plain = {"num_hidden_layers": 3, "hidden_size": 8, "num_attention_heads": 4}
    slides = plain | {"sliding_window": 4}
    expect_close(float(student.bytes_per_token(config, 1, 1)), values * 33 / 8, what="1 bit, G = 1")
    expect_close(float(student.cache_bytes(config, [0, 0])), 0.0, what="empty sequences")
    expect_close(float(student.cache_bytes(config, [])), 0.0, what="no sequences")
    one = student.cache_bytes(slides | {"sliding_window": 1}, [5, 0, 1])
    expect_close(float(one), 2 * 96.0, what="a window of 1")
    for kinds, kept in ((None, 4), ([SLIDING], 4), ([FULL], 5)):
        single = slides | {"num_hidden_layers": 1, "layer_types": kinds}
        found = student.cache_bytes(single, [5])
        expect_close(float(found), kept * 32.0, what="one layer with a window of 4")
    for call, what in (
        (lambda: student.bytes_per_token(config, -4), "negative bits"),
        (lambda: student.bytes_per_token(config, 0, 32), "no bits"),
        (lambda: student.bytes_per_token(config, 4, -32), "a negative group"),
        (lambda: student.bytes_per_token(config, 4, 0), "a group of 0"),
        (lambda: student.cache_bytes(config, [5], 4, 0), "groups of 0"),
        (lambda: student.cache_bytes(config, [], 4, 0), "groups of 0, no sequences"),
        (lambda: student.cache_bytes(config, [5], 0), "no bits in cache_bytes"),
        (lambda: student.cache_bytes(config, [], -1), "negative bits, no sequences"),
        (lambda: student.cache_bytes(config, [0], 0), "no bits, an empty sequence"),
    ):
        expect_error(ValueError, call, what)
    for asked in (plain, slides, slides | {"layer_types": [FULL] * 3}):
        for lengths in ([-5, 5], [5, -5], [-1], [3, 4, -(10**9)]):
            what = "a negative length"
            expect_error(ValueError, lambda c=asked, n=lengths: student.cache_bytes(c, n), what)
    for kinds in (
        [FULL] * 2,
        [SLIDING] * 4,
        [FULL] * 30,
        [FULL, SLIDING, "linear_attention"],
        ["linear_attention", FULL, SLIDING],
        [FULL, "sliding", FULL],
        [SLIDING, FULL, "sliding_attention_2"],
        [SLIDING, "Full_Attention", FULL],
        [f" {FULL}", SLIDING, FULL],
        [FULL, SLIDING, f"{SLIDING} "],
    ):
        for asked in (plain | {"layer_types": kinds}, slides | {"layer_types": kinds}):
            for lengths in ([5], [0], []):
                what = "layer_types that do not fit"
                expect_error(ValueError, lambda c=asked, n=lengths: student.cache_bytes(c, n), what)
    odd = slides | {"head_dim": None, "layer_types": [FULL, SLIDING, "none"]}
    calls = [("bytes_per_token", odd, 0), ("bytes_per_token", odd, 4, 0)]
    calls += [("cache_bytes", odd, [5, 3]), ("cache_bytes", slides, [5, -1, 3], 4, 32)]
    refused(student, calls)


def some_config(layers, heads, size, kv, head_dim, latent, window, kinds):
    """(a config with these fields, the values of all layers). MISSING: the field is not there."""
    config = {"num_attention_heads": heads, "hidden_size": heads * size}
    config["num_hidden_layers"] = layers
    config["num_key_value_heads"] = heads if kv == "heads" else kv
    config["head_dim"], config["sliding_window"] = head_dim, window
    config["kv_lora_rank"], config["qk_rope_head_dim"] = latent
    names = {"full": [FULL] * layers, "sliding": [SLIDING] * layers}
    names["mixed"] = [(SLIDING, FULL)[i % 2] for i in range(layers)]
    names["one full"] = [SLIDING] * (layers - 1) + [FULL]
    config["layer_types"] = names.get(kinds, kinds)
    if head_dim not in (MISSING, None) or latent[0] not in (MISSING, None):
        config["hidden_size"] += heads // 2  # nobody divides it
    config = {name: value for name, value in config.items() if value != MISSING}
    values = 2 * (config.get("num_key_value_heads") or heads) * (config.get("head_dim") or size)
    if config.get("kv_lora_rank") is not None:
        values = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    return config, layers * values


def worded(rng, names, values, required):
    """(args, kwargs): each value by its place or by its name; defaults are left out at times."""
    defaults = {"bits": 16, "group_size": None, "weight_bits": 16}
    count = required + draw(rng, 0, len(names) - required)  # by their place
    args, kwargs = values[:count], dict(zip(names[count:], values[count:], strict=True))
    for name in names[required:]:
        if name in kwargs and kwargs[name] == defaults[name] and draw(rng, 0, 1):
            del kwargs[name]
    return tuple(args), kwargs


def drive_same_objects(student, calls):
    """Runs beside the student's code: the results of calls (name, config, *args), whose config is
    one dictionary that is filled anew, and whether a call changed it."""
    config, found = {}, []
    for name, new, *args in calls:
        config.clear()
        config.update(new)
        result = getattr(student, name)(config, *args)
        found.append([result, config == new and list(config) == list(new)])
    return found


SOME_FIELDS = (
    (1, 2, 32, 61, 126),
    (1, 4, 128),
    (1, 64, 129),
    (MISSING, None, 1, "heads"),
    (MISSING, None, 1, 80, 576),
    ((MISSING, MISSING), (None, None), (1, 1), (512, 64)),
    (MISSING, None, 1, 1000, 65_536),
    (MISSING, None, "full", "sliding", "mixed", "one full"),
)


@exercise(
    "ex1",
    points=1,
    invariant="both functions, anywhere in what the card admits: every two of fields, bits, groups "
    "and lengths, arguments by place and by name, and the same objects with other contents",
    cause="a corner where two others meet, such as a latent and a window; or a result that is kept",
)
def test_anywhere_in_the_bytes(student, rng):
    many = [draw(rng, 0, 2000) for _ in range(1500)]
    lengths = ([], [0], [1], [999, 1000, 1001], [10**6, 0, 1], [7] * 3, [0, 0], many)
    bits, groups = (1, 2, 3, 16, 33, 1000), (None, 1, 3, 32, 100, 10**5)
    cases = every_pair(rng, *SOME_FIELDS, bits, groups, lengths)
    each, together, same, rights = [], [], [], []
    for *fields, b, group, some in cases:
        config, values = some_config(*fields)
        each.append(worded(rng, ("config", "bits", "group_size"), (config, b, group), 1))
        names = ("config", "lengths", "bits", "group_size")
        together.append(worded(rng, names, (config, some, b, group), 2))
        same += [("bytes_per_token", config, b, group), ("cache_bytes", config, some, b, group)]
        of_value = (b + (Fraction(32, group) if group else 0)) / 8
        kept = sum(n * kept_values(config, values, m) for m, n in Counter(some).items())
        rights.append((float(values * of_value), float(kept * of_value)))
    found = [student.many("bytes_per_token", each), student.many("cache_bytes", together)]
    again = student.drive(drive_same_objects, same)
    assert all(unchanged for _, unchanged in again), "the config is another one after a call"
    found += [[value for value, _ in again[i::2]] for i in (0, 1)]
    for i, results in enumerate(found):
        name = ("bytes_per_token(...)", "cache_bytes(...)")[i % 2]
        for result, right in zip(results, rights, strict=True):
            value = float(expect_number(result, name))
            expect_close(value, right[i % 2], what=name, rtol=1e-12)


@exercise(
    "ex1",
    points=0.5,
    invariant="what is refused is refused with any config, any lengths, any other argument",
    cause="a check that stands behind something that returns or fails before it",
)
def test_anywhere_refused(student, rng):
    numbers = ((0, None), (-1, None), (0, 32), (16, 0), (1, -1), (-1, 0), (33, -32), (0, 1))
    numbers += ((-1, 100), (1, 0), (16, -1), (-16, -100))
    calls = []
    for *fields, (bits, group), lengths in every_pair(
        rng, *SOME_FIELDS, numbers, ([], [0], [1000, 10**6], [5] * 400)
    ):
        config, _ = some_config(*fields)
        calls.append(("bytes_per_token", config, bits, group))
        calls.append(("cache_bytes", config, lengths, bits, group))
    lengths = ([-1], [0, -1], [-1, 10**6], [10**6, -3, 5], [3] * 400 + [-1])
    sizes = ((16, None), (1, 32), (33, 1), (3, 100))
    for *fields, (bits, group), some in every_pair(rng, *SOME_FIELDS, sizes, lengths):
        calls.append(("cache_bytes", some_config(*fields)[0], some, bits, group))
    odd = ("fewer", "more", "", "Sliding_attention", "full", "chunked_attention")
    for *fields, (bits, group), some, name in every_pair(
        rng, *SOME_FIELDS[:-1], ("full", "sliding", "mixed"), sizes, ([], [0], [5, 10**6]), odd
    ):
        config, _ = some_config(*fields)
        kinds = config["layer_types"]
        place = draw(rng, 0, len(kinds) - 1)
        if name in ("fewer", "more"):
            config["layer_types"] = (kinds + kinds[:1])[
                : len(kinds) + (1 if name == "more" else -1)
            ]
        else:
            kinds[place] = name
        if config["layer_types"]:  # never empty, says the card
            calls.append(("cache_bytes", config, some, bits, group))
    refused(student, calls)
    config, values = some_config(2, 4, 64, 1, None, (None, None), 3, "mixed")  # and this is not
    found = expect_number(student.bytes_per_token(config, 1, 1), "bytes_per_token(...)")
    expect_close(float(found), values * 33 / 8, what="bytes of a token", rtol=1e-12)
    found = expect_number(student.cache_bytes(config, [5], 1, 1), "cache_bytes(...)")
    expect_close(float(found), values * 33 / 8 * 4, what="bytes of the caches", rtol=1e-12)


# ---- exercise 2 ------------------------------------------------------------------------------


def drive_cache(student, steps, how):
    """Runs beside the student's code: a cache that is fed; what it returns after each step.

    how: "spoil" overwrites what went in and came out, tensors and lists, as others may do; "views"
    passes tensors that are not contiguous.
    """

    def shown(lengths):
        ints = isinstance(lengths, list) and all(isinstance(n, int) for n in lengths)
        return list(lengths) if ints else f"{type(lengths).__name__} {lengths}"

    cache, out, held = student.RowCache(), [], []
    for step in steps:
        *given, numbers = step
        numbers = list(numbers)
        given = [x.clone() for x in given]
        if how == "views":
            given = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in given]
        try:
            parts = cache.append(*given, numbers) if given else cache.truncate(numbers)
        except ValueError:
            same = all(x.equal(y) for x, y in zip(given, step[:-1], strict=True))
            if not same or numbers != list(step[-1]):
                raise RuntimeError("an argument was changed before the ValueError") from None
            raise
        parts = list(parts) if given else []
        out.append([[p.clone() for p in parts], shown(cache.lengths)])
        out[-1] += [[x.clone() for x in given], list(numbers)]
        if how == "spoil":
            for tensor in (*given, *parts):
                tensor.zero_()
            numbers[:] = [len(out)] * len(numbers)
        held.append([] if how == "spoil" else parts)
    return [[*result, parts] for result, parts in zip(out, held, strict=True)]


def appended(result, step, history, what):
    """Checks one append against `history`, a list of (k [Hkv, n, d], v) for each row."""
    parts, lengths, given, *_ = result
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
            seen = mask[row, i].nonzero().flatten().tolist()
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
    return followed(student.drive(drive_cache, steps, how), steps)


def followed(results, steps):
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
    for number, result in enumerate(results, start=1):
        for later, then in zip(result[4], result[0], strict=False):
            expect_same(later, then, f"what step {number} returned, after later steps,")
    return results


def new_tokens(rng, shape, counts, dtype=torch.float32):
    k, v = (torch.randn(shape, generator=rng).to(dtype) for _ in range(2))
    return k, v, counts


def exact_attention(q, k, v, mask):
    """softmax(q k^T / sqrt d) v in float64, query by query. [B, H, T, d]"""
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=torch.float64)
    share = q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double(), v.double()
    for b in range(q.shape[0]):
        for t in range(q.shape[2]):
            slots = mask[b, t].nonzero()[:, 0]
            if not len(slots):
                continue
            for h in range(q.shape[1]):
                keys, values = k[b, h // share, slots], v[b, h // share, slots]
                scores = keys @ q[b, h, t] / math.sqrt(q.shape[3])
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
    points=1.5,
    invariant="after any appends and truncations each row holds its own tokens, and sees those",
    cause="tokens of a row that was cut back come back, a length that follows the longest row, "
    "slots that are not shrunk, an S or a T of 0 that was not thought of, a view() of a view",
)
def test_random_walks(student, rng):
    for rows, heads, d, dtype in (
        (1, 1, 2, torch.float32),
        (3, 2, 4, torch.bfloat16),
        (2, 1, 1, torch.float16),
    ):
        for how in ("plain", "plain", "views", "views"):
            follow(student, walk(rng, rows, heads, d, 8, dtype), how)
    # nothing comes, everything goes, and it begins again
    nothing, none = new_tokens(rng, (2, 2, 3, 4), [0, 0]), new_tokens(rng, (2, 2, 0, 4), [0, 0])
    some = new_tokens(rng, (2, 2, 3, 4), [2, 0])
    follow(student, [nothing, none, ([0, 3],), some, ([0, 0],), none, nothing, some])
    follow(student, [none, some, none])
    # tokens that are all zero are tokens, too
    zeros = (*(torch.zeros(2, 2, 3, 4) for _ in range(2)), [3, 1])
    follow(student, [zeros, some, ([4, 1],), zeros])
    # texts longer than what 8 bits, and the 8 bits of a bfloat16, count
    for dtype in (torch.float32, torch.bfloat16):
        long = [new_tokens(rng, (2, 1, 600, 1), [600, 520], dtype), ([10**9, 513],)]
        long.append(new_tokens(rng, (2, 1, 3, 1), [1, 3], dtype))
        follow(student, [*long, ([259, 10**9],), new_tokens(rng, (2, 1, 1, 1), [1, 1], dtype)])


def drive_in_turn(student, walks):
    """Runs beside the student's code: as many caches as walks, each fed one step in turn."""
    caches = [student.RowCache() for _ in walks]
    out = [[] for _ in walks]
    for steps in zip(*walks, strict=True):
        for cache, results, (*given, numbers) in zip(caches, out, steps, strict=True):
            sent = list(numbers)
            parts = list(cache.append(*given, sent)) if given else []
            if not given:
                cache.truncate(sent)
            results.append([parts, list(cache.lengths), given, sent, []])
    return out


@exercise(
    "ex2",
    points=1.5,
    invariant="the cache keeps tensors of its own, and a second cache is another one",
    cause="a view of what was passed in or handed out is kept, or a mask; a list of the caller's "
    "that is kept or changed, or lists that all caches share",
)
def test_tensors_of_its_own(student, rng):
    for _ in range(3):
        full = new_tokens(rng, (2, 1, 3, 2), [3, 3])
        follow(student, [full, *walk(rng, 2, 1, 2, 4)], "spoil")
        follow(student, walk(rng, 3, 2, 4, 8), "spoil")
        follow(student, walk(rng, 2, 1, 2, 3), "spoil")
    # a truncation that cuts every row keeps no list of the caller's
    steps = [new_tokens(rng, (2, 1, 6, 2), [6, 5]), ([4, 3],)]
    follow(student, [*steps, new_tokens(rng, (2, 1, 2, 2), [2, 1])], "spoil")
    # nor does an append that brings nothing hand out what the cache keeps
    none, more = (new_tokens(rng, (2, 1, t, 2), [0, 0]) for t in (0, 2))
    follow(student, [steps[0], none, more, steps[0]], "spoil")
    # nor is a first token that is all there is kept as it came
    one, two = (new_tokens(rng, (2, 1, 1, 2), [1, 1]) for _ in range(2))
    follow(student, [one, two], "spoil")
    follow(student, [one, ([1, 1],), two, two, ([1, 1],), two, ([0, 0],), one], "spoil")
    # nor is a mask handed out again where the call before had the same lengths
    follow(student, [one, two, ([1, 1],), two, ([1, 1],), two], "spoil")
    # what it handed out is not written over by a result of the same shape, nor by a truncation
    follow(student, [*steps, new_tokens(rng, (2, 1, 2, 2), [2, 1])])
    follow(student, [*steps, new_tokens(rng, (2, 1, 2, 2), [2, 1]), ([1, 1],)])
    # two layers of a model, each with its cache
    walks = [[*steps, one, two], [two, one, ([1, 2],), steps[0]]]
    for results, walked in zip(student.drive(drive_in_turn, walks), walks, strict=True):
        followed(results, walked)


def drive_uninitialized(student, k, v, counts):
    """Runs beside the student's code, where memory that nobody has written holds NaN."""
    import torch

    # use_deterministic_algorithms does the same, and imports the compiler first: seconds
    torch.set_deterministic_debug_mode("warn")
    try:
        cache, out = student.RowCache(), []
        for _ in range(2):
            keys, values, mask = cache.append(k, v, list(counts))
            out.append((keys.clone(), values.clone(), mask.clone()))
    finally:
        torch.set_deterministic_debug_mode("default")
    return out


@exercise(
    "ex2",
    points=1,
    invariant="the filling that append returns is finite: attention over it gives no NaN",
    cause="a buffer of torch.empty, whose filling is what was in the memory before",
)
def test_filling_is_finite(student, rng):
    k, v, counts = new_tokens(rng, (3, 2, 4, 2), [4, 0, 1])
    q = torch.randn(3, 2, 4, 2, generator=rng)
    for keys, values, mask in student.drive(drive_uninitialized, k, v, counts):
        for name, x in (("keys", keys), ("values", values)):
            assert x.isfinite().all(), f"{name} hold what torch.empty found in the memory"
        out = student.attend(q, keys, values, mask)
        for row, count in enumerate(counts):
            right = exact_attention(q, keys, values, mask)[row, :, :count]
            expect_close(out[row, :, :count], right, what="the output", atol=1e-5)


def drive_views(student, q, k, v, mask):
    """Runs beside the student's code: attention over tensors that are not contiguous."""
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    return student.attend(q, k, v, mask.mT.contiguous().mT)


@exercise(
    "ex2",
    points=1,
    invariant="attention against float64: any mask, grouped heads, each dtype of q and of the "
    "cache, numbers from 1e-8 to 1e4, no slots at all",
    cause="heads in another order, sums in bfloat16, scores without 1 / sqrt(d), a mask on all "
    "rows, q in the dtype of the cache or the output in it, or -10000 for what is hidden",
)
def test_attention_against_float64(student, rng):
    float32, bfloat16, float16 = torch.float32, torch.bfloat16, torch.float16
    units = {float32: 64 * FLOAT32, bfloat16: BFLOAT16, float16: FLOAT16}
    pairs = [(x, x) for x in units] + [(float32, bfloat16), (bfloat16, float32)]
    pairs.append((bfloat16, float16))
    for heads, kv_heads, d in ((4, 4, 8), (6, 2, 4), (4, 1, 16), (1, 1, 128), (32, 2, 4)):
        for dtype, of_cache in pairs:
            q = torch.randn(2, heads, 3, d, generator=rng).to(dtype)
            k, v = (torch.randn(2, kv_heads, 7, d, generator=rng).to(of_cache) for _ in range(2))
            mask = torch.rand(2, 3, 7, generator=rng) < 0.5
            mask[1, 2], mask[0, 1] = False, True
            for scale in (1, 8):
                right = exact_attention(q, scale * k, v, mask)
                for out in (
                    student.attend(q, scale * k, v, mask),
                    student.drive(drive_views, q, scale * k, v, mask),
                ):
                    expect_tensor(out, "attend(...)", dtype, tuple(q.shape))
                    expect_close(out, right, what="the output", atol=4e-5, rtol=units[dtype])
    q = torch.randn(2, 4, 3, 8, generator=rng)
    k, v = (torch.randn(2, 2, 5, 8, generator=rng) for _ in range(2))
    mask = torch.rand(2, 3, 5, generator=rng) < 0.5
    for size in (1e-8, 1e4):  # of the values; then of the scores
        out, right = student.attend(q, k, size * v, mask), exact_attention(q, k, size * v, mask)
        expect_close(out, right, what=f"values near {size:g}: the output", atol=4e-5 * size)
    out = student.attend(1e-8 * q, 1e-8 * k, v, mask)
    expect_close(out, exact_attention(0 * q, k, v, mask), what="scores of 0", atol=4e-5)
    # two slots that are alike are seen, at a score far below 0, one still lower; one is hidden
    q, k = torch.full((1, 1, 1, 4), 1e4), torch.full((1, 1, 4, 4), -5e3)
    k[0, 0, 2], k[0, 0, 3] = 0.0, -1e4
    v = torch.tensor([[[[1.0, 0, 0, 0], [3, 0, 0, 0], [50, 0, 0, 0], [90, 0, 0, 0]]]])
    out = student.attend(q, k, v, torch.tensor([[[True, True, False, True]]]))
    right = torch.tensor([2.0, 0, 0, 0])
    expect_close(out[0, 0, 0], right, what="scores of -1e8 and -2e8: the output", atol=1e-5)
    # the same with scores of -1.1e9, and of +1.1e9 in the slot that is hidden
    q, k = torch.full((1, 1, 1, 128), 1e4), torch.full((1, 1, 3, 128), -1e4)
    k[0, 0, 2], v = 1e4, torch.zeros(1, 1, 3, 128)
    v[0, 0, :, 0] = torch.tensor([1.0, 3, 50])
    out = student.attend(q, k, v, torch.tensor([[[True, True, False]]]))
    expect_close(out[0, 0, 0], v[0, 0, :2].mean(0), what="scores of -1e9: the output", atol=1e-5)
    # and lower still: of two seen scores below -1e9 the larger one counts
    k = torch.full((1, 1, 3, 128), -1e4)
    k[0, 0, 1], k[0, 0, 2] = -9.5e3, 1e4
    out = student.attend(q, k, v, torch.tensor([[[True, True, False]]]))
    expect_close(out[0, 0, 0], v[0, 0, 1], what="scores of -1.1e9 and less: the output", atol=1e-5)
    # of a slot with the share 2e-7 the value is large, and all that there is
    q, k = torch.ones(1, 1, 1, 4), torch.zeros(1, 1, 2, 4)
    k[0, 0, 1], v = -7.75, torch.tensor([[[[0.0], [1e4]]]]).expand(1, 1, 2, 4)
    right = exact_attention(q, k, v, torch.ones(1, 1, 2).bool())
    out = student.attend(q, k, v, torch.ones(1, 1, 2).bool())
    expect_close(out, right, what="a share of 2e-7: the output", rtol=1e-4)
    # a mean of values that float16 would round to 0: only the result is in the dtype of q
    v = torch.tensor([[[[1 + 2.0**-12, 1], [-1, 1]]]])
    out = student.attend(0 * v.half(), 0 * v, v, torch.ones(1, 2, 2).bool())
    right = torch.tensor([2.0**-13, 1]).half().expand(1, 1, 2, 2)
    expect_close(out, right, what="float32 values, q in float16: the output", atol=2.0**-20)
    q, k = torch.randn(1, 2, 2, 4, generator=rng), torch.randn(1, 1, 600, 4, generator=rng)
    mask = torch.arange(600) < torch.tensor([[[600], [300]]])
    right = exact_attention(q, k, k, mask)
    expect_close(student.attend(q, k, k, mask), right, what="600 slots: the output", atol=4e-5)
    calls = []
    for dtype in (*units, float32):
        q, k, v = (torch.randn(2, h, 3, 8, generator=rng).to(dtype) for h in (4, 2, 2))
        calls.append(("attend", q, k, v, torch.rand(2, 3, 3, generator=rng) < 0.6))
    again(student, calls)
    for slots, new in ((0, 3), (0, 1), (4, 0)):
        q, k = torch.randn(2, 4, new, 8, generator=rng), torch.randn(2, 2, slots, 8, generator=rng)
        out = student.attend(q, k, k, torch.ones(2, new, slots).bool())
        expect_same(out, torch.zeros(2, 4, new, 8), f"{slots} slots, {new} queries: the output")


def drive_new_cache(student):
    """Runs beside the student's code: the lengths before the first append."""
    return list(student.RowCache().lengths)


@exercise(
    "ex2",
    points=1.5,
    invariant="counts from 0 to T for every row, lengths for every row; others raise ValueError",
    cause="only one side of a limit is checked, or a shape that is compared in part",
)
def test_what_does_not_fit(student, rng):
    one = new_tokens(rng, (2, 2, 3, 4), [3, 0])
    follow(student, [one, new_tokens(rng, (2, 2, 3, 4), [0, 3])])
    k, v, _ = one
    none = new_tokens(rng, (2, 2, 0, 4), [0, 0])
    for bad, what in (
        ((k, v, [3, -1]), "-1 tokens"),
        ((k, v, [0, 4]), "4 of 3 tokens"),
        ((k, v, [1, 1, 1]), "three counts for two rows"),
        ((k[:, :1], v[:, :1], [1, 1]), "another number of heads"),
        ((k[..., :2], v[..., :2], [1, 1]), "another size of a head"),
        (new_tokens(rng, (3, 2, 3, 4), [1, 1, 1]), "more rows"),
        (new_tokens(rng, (2, 3, 3, 4), [1, 1]), "more heads"),
        (new_tokens(rng, (2, 2, 3, 6), [1, 1]), "a larger head"),
        ((k, v[..., :2], [1, 1]), "values of another size"),
        ((k, v[:, :1], [1, 1]), "values of one head for two"),
        ((k, v[:1], [1, 1]), "values of one row for two"),
        (([1, 1, 1],), "three lengths for two rows"),
        (([1, -3],), "a length of -3"),
    ):
        for steps in ([one, bad], [one, one, bad], [none, bad], [one, ([0, 0],), bad]):
            expect_error(ValueError, lambda s=steps: student.drive(drive_cache, s, ""), what)
    expect_error(ValueError, lambda: student.drive(drive_cache, [(k, v, [4, 0])], ""), "first")
    four = new_tokens(rng, (4, 1, 3, 2), [2, 0, 3, 1])
    for row in range(4):
        for bad in (-1, 4):
            counts = [bad if i == row else 1 for i in range(4)]
            wrong = [(*four[:2], counts)] if bad > 0 else [(*four[:2], counts), (counts,)]
            for step in wrong:
                what = f"{step[-1]} in rows of 3 new tokens"
                steps = [four, step]
                expect_error(ValueError, lambda s=steps: student.drive(drive_cache, s, ""), what)
    # values of another shape than the keys, each dimension, also where as many numbers remain
    shape = k.shape
    others = [
        [n + (i == dim) * by for i, n in enumerate(shape)] for dim in range(4) for by in (-1, 1)
    ]
    others += [[shape[i] for i in order] for order in ((0, 1, 3, 2), (0, 2, 1, 3))]
    others += [[2, 2, 12, 1], [2, 1, 6, 4], [1, 2, 6, 4]]
    for other in others:
        values = torch.randn(other, generator=rng)
        for steps in ([(k, values, [1, 1])], [one, (k, values, [1, 1])], [(k, values, [0, 0])]):
            what = f"keys {list(shape)}, values {other}"
            expect_error(ValueError, lambda s=steps: student.drive(drive_cache, s, ""), what)
    assert student.drive(drive_new_cache) == [], "an empty cache has lengths"


def drive_caches(student, walks, ways, spoil):
    """Runs beside the student's code: as many caches as walks, which take their steps in turn;
    of each step what it returned, the lengths, and whether its arguments stayed as they were.

    Tensors lie in memory as `ways` says, over and over. spoil: of each cache whether what went in
    and came out is overwritten; else it is held, and read at the end.
    """
    import itertools

    turn = itertools.cycle(ways)

    def lay(x):
        way = next(turn)
        if way == 1:
            return x.mT.contiguous().mT
        if way == 2:
            return x.repeat_interleave(2, -1).repeat(2, 1, 1, 1)[: len(x), ..., ::2]
        return x.transpose(1, 2).contiguous().transpose(1, 2) if way == 3 else x.clone()

    caches, out = [student.RowCache() for _ in walks], [[] for _ in walks]
    for steps in itertools.zip_longest(*walks):
        for cache, step, results, spoiled in zip(caches, steps, out, spoil, strict=True):
            if step is None:
                continue
            *given, numbers = step
            laid, asked = [lay(x) for x in given], list(numbers)
            parts = list(cache.append(*laid, asked)) if given else []
            if not given:
                cache.truncate(asked)
            same = all(x.equal(y) for x, y in zip(laid, given, strict=True)) and asked == numbers
            if spoiled:
                kept = [p.clone() for p in parts]
                for tensor in (*laid, *parts):
                    tensor.fill_(1)
                asked[:] = [77] * len(asked) + [5]
                parts = kept
            results.append([parts, list(cache.lengths), same])
    return out


def expect_rows(results, steps, what):
    """What a cache returned, against rows that are kept here."""
    assert len(results) == len(steps), f"{what}: the cache stopped early"
    rows = None
    for step, (parts, lengths, same) in zip(steps, results, strict=True):
        *given, numbers = step
        assert same, f"{what}: an argument was changed"
        rows = rows or [[x[0, :, :0] for x in given] for _ in numbers]
        before = [row[0].shape[1] for row in rows]
        if given:
            rows = [
                [torch.cat([kept, x[b, :, :n]], 1) for kept, x in zip(rows[b], given, strict=True)]
                for b, n in enumerate(numbers)
            ]
        else:
            rows = [[x[:, :n] for x in row] for row, n in zip(rows, numbers, strict=True)]
        assert lengths == [row[0].shape[1] for row in rows], f"{what}: lengths {lengths}"
        if not given:
            continue
        assert len(parts) == 3, f"{what}: append must return (keys, values, mask)"
        (b, h, t, d), size = given[0].shape, max(lengths)
        for x in parts[:2]:
            expect_tensor(x, f"{what}: keys and values", given[0].dtype, (b, h, size, d))
            assert x.isfinite().all(), f"{what}: filling is not finite"
        expect_tensor(parts[2], f"{what}: the mask", torch.bool, (b, t, size))
        sees = torch.tensor(before)[:, None] + torch.arange(1, t + 1)
        new = torch.arange(t) < torch.tensor(numbers)[:, None]  # [B, T], the others are filling
        right = torch.arange(size) < sees[..., None]
        expect_same(parts[2][new], right[new], f"{what}: the mask of new tokens")
        for row, n in enumerate(lengths):
            for found, kept in zip(parts, rows[row], strict=False):
                expect_same(found[row, :, :n], kept, f"{what}: row {row} of {n} tokens")


def some_counts(rng, rows, t, kind):
    if kind == "mixed":
        return [draw(rng, 0, t) for _ in range(rows)]
    chosen = {"none": [], "all": range(rows), "first": [0], "last": [rows - 1]}[kind]
    return [t if i in chosen else 0 for i in range(rows)]


def some_tokens(rng, shape, size, dtype):
    return (size * torch.randn(shape, generator=rng)).to(dtype)


def cut(rng, kind, lengths):
    """Lengths for truncate, or None."""
    if kind == "one row to 0":
        return [0 if i == len(lengths) // 2 else n for i, n in enumerate(lengths)]
    if kind == "mixed":
        return [draw(rng, 0, n + 1) for n in lengths]
    numbers = {"nothing": 10**9, "to 0": 0, "to 1": 1, "as they are": None}
    return [n if numbers[kind] is None else numbers[kind] for n in lengths]


KINDS = ("none", "all", "first", "last", "mixed")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@exercise(
    "ex2",
    points=1,
    invariant="a cache anywhere in what the card admits: every two of sizes, dtype, counts, what "
    "is cut off and when, magnitudes and layouts, many caches at once",
    cause="a corner where two others meet, such as no new tokens and bfloat16; or a cache that "
    "hands out what it keeps, or keeps what it was handed",
)
def test_anywhere_in_rows(student, rng):
    sizes, cuts = (1e-8, 1.0, 1e4), ("to 0", "to 1", "mixed", "nothing", "one row to 0")
    walks, whats, spoil = [], [], []
    for rows, heads, d, dtype, *more in every_pair(
        rng, (1, 2, 5), (1, 3), (1, 4, 64), DTYPES, (0, 1, 5), KINDS, (0, 1, 4, 70), KINDS,
        (*cuts, "as they are"), (0, 1, 3), KINDS[:3], cuts, sizes, sizes, (None, 0, 1), (0, 1),
    ):  # fmt: skip
        *plan, k_size, v_size, zeros, spoiled = more
        steps, lengths = [], [0] * rows
        pieces = [(plan[0], plan[1]), (plan[2], plan[3]), plan[4], (plan[5], plan[6]), plan[7]]
        for piece in (*pieces, (2, "mixed")):
            if isinstance(piece, str):
                steps.append((cut(rng, piece, lengths),))
                lengths = [min(n, m) for n, m in zip(lengths, steps[-1][0], strict=True)]
                continue
            counts, shape = some_counts(rng, rows, piece[0], piece[1]), (rows, heads, piece[0], d)
            given = [some_tokens(rng, shape, size, dtype) for size in (k_size, v_size)]
            if zeros is not None:
                given[zeros].zero_()
            steps.append((*given, counts))
            lengths = [n + c for n, c in zip(lengths, counts, strict=True)]
        walks.append(steps)
        spoil.append(spoiled)
        whats.append(f"B {rows}, Hkv {heads}, d {d}, {dtype}, {more}")
    found = student.drive(drive_caches, walks, drawn_ways(rng), spoil)
    for steps, results, what in zip(walks, found, whats, strict=True):
        expect_rows(results, steps, what)


def drive_not_taken(student, walks, ways):
    """Runs beside the student's code: of each walk the step at which a cache raised, what, and
    whether its arguments stayed as they were."""
    said, turn = [], iter(ways * (4 * len(walks)))
    for steps in walks:
        cache, saw = student.RowCache(), [-1, "nothing", True]
        for number, (*given, numbers) in enumerate(steps):
            laid, asked = [x.mT.contiguous().mT if next(turn) % 2 else x.clone() for x in given], []
            asked += numbers
            try:
                cache.append(*laid, asked) if given else cache.truncate(asked)
            except Exception as error:
                kind = type(error).__name__
                kind = "ValueError" if isinstance(error, ValueError) else kind
                same = all(x.equal(y) for x, y in zip(laid, given, strict=True))
                saw = [number, kind, same and asked == list(numbers)]
                break
        said.append(saw)
    return said


def misfit(rng, shape, kind, place):
    """(shape of k, shape of v, counts), of which something does not fit [B, Hkv, T, d]."""
    b, h, t, d = shape
    counts, other = [t] * b, list(shape)
    if kind in (-1, 1):  # too few, too many
        counts[place % b] = -1 if kind < 0 else t + 1
        return shape, shape, counts
    if kind in ("a count less", "a count more"):
        counts = [t] * (b - 1 if kind == "a count less" else b + 1)
        return shape, shape, counts
    what, dim, by = kind
    other[dim] += by
    if what == "v":
        return shape, other, [0] * b
    return other, other, [0] * other[0]


@exercise(
    "ex2",
    points=0.5,
    invariant="what does not fit is refused in any row, any dtype, with or without tokens, at "
    "first and later, and the arguments stay as they were",
    cause="a check that stands behind something that returns or fails before it",
)
def test_anywhere_refused_by_rows(student, rng):
    kinds = [-1, 1, "a count less", "a count more"]
    kinds += [("v", dim, by) for dim in range(4) for by in (-1, 1)]
    kinds += [("both", dim, by) for dim in (0, 1, 3) for by in (-1, 1)]
    walks = []
    for kind, b, h, t, d, dtype, place, history in every_pair(
        rng, kinds, (1, 2, 5), (1, 3), (0, 1, 4), (1, 4), DTYPES, (0, 1, 4),
        ("first", "tokens", "none", "cut", "twice"),
    ):  # fmt: skip
        shape = (b, h, t, d)
        of_k, of_v, counts = misfit(rng, shape, kind, place)
        if min(of_k) < 0 or min(of_v) < 0 or min(of_k[0], of_k[1], of_k[3]) < 1:
            continue
        before = 0 if history in ("first", "none") else 3
        first = (*(some_tokens(rng, (b, h, before, d), 1, dtype) for _ in "kv"), [before] * b)
        steps = {"first": [], "cut": [first, ([0] * b,)], "twice": [first, first]}
        steps = steps.get(history, [first])
        if not steps and isinstance(kind, tuple) and kind[0] == "both":
            continue  # of a first call all shapes are right
        bad = (*(some_tokens(rng, s, 1, dtype) for s in (of_k, of_v)), counts)
        walks.append([*steps, bad])
        if steps:  # a length that is negative, and another number of them
            wrong = [2] * b
            wrong[place % b] = -1 - place
            walks.append([*steps, (wrong if kind != 1 else [2] * (b + (-1, 1)[place % 2]),)])
    for steps, (number, kind, same) in zip(
        walks, student.drive(drive_not_taken, walks, drawn_ways(rng)), strict=True
    ):
        what = f"{[tuple(x.shape) for x in steps[-1][:-1]]}, {steps[-1][-1]} after {len(steps) - 1}"
        assert (number, kind) == (len(steps) - 1, "ValueError"), f"{what}: raised {kind}"
        assert same, f"{what}: an argument was changed before the ValueError"
    follow(student, [new_tokens(rng, (2, 1, 3, 2), [3, 1]), ([2, 2],)])  # and this is taken


def half_step(x, dtype):
    """Half a unit in the last place of a number of this dtype near x (float64)."""
    bits, least = {torch.float32: (24, -149), torch.bfloat16: (8, -133), torch.float16: (11, -24),
                   torch.float64: (53, -1074)}[dtype]  # fmt: skip
    return 2.0 ** ((x.abs().frexp().exponent - bits).clamp(min=least).double() - 1)


def expect_attention(out, q, k, v, mask):
    """Against float64, within what roundings of float32 and one to the dtype of q can do."""
    (_, h, _, d), s = q.shape, k.shape[2]
    what = f"attention, q {list(q.shape)} {q.dtype}, S {s}, {k.dtype}"
    expect_tensor(out, what, q.dtype, tuple(q.shape))
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(h // x.shape[1], 1) for x in (k, v))
    scores = (q @ k.mT / d**0.5).masked_fill(~mask[:, None], -math.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)
    # a score is off by its d products and sums, what lies far below the largest has no weight
    off = (d + 16) * FLOAT32 * (q.abs() @ k.abs().mT).masked_fill(~mask[:, None], 0.0) / d**0.5
    if scores.isfinite().any() and scores[scores.isfinite()].abs().max() > 512:
        off = 0 * off  # scores of `far_apart`: equal ones are equal, all others far from them
    off = 2 * off.amax(-1, keepdim=True) if s else off.sum(-1, keepdim=True)
    slack = torch.expm1(off) + (2 * s + 160) * FLOAT32
    right, bound = weights @ v, slack * (weights @ v.abs()) + 2.0**-100
    bound = bound + half_step(right.abs() + bound, out.dtype)
    expect_at_most((out.double() - right).abs(), bound, f"{what}: the error")


def far_apart(rng, q_shape, k_shape, q_size, k_size):
    """(q, k) whose scores are exact in float32, and equal or at least 2^8 apart."""
    (_, h, _, d), (b, kv, s, _) = q_shape, k_shape
    sign = (torch.randint(0, 2, (b, kv, 1, d), generator=rng) * 2 - 1).float()
    top = 2.0 ** math.floor(math.log2(q_size)), 2.0 ** math.floor(math.log2(k_size))
    q = torch.randint(0, 2, q_shape, generator=rng).float() / 2 + 0.5
    q = top[0] * q * sign.repeat_interleave(h // kv, 1)
    q *= torch.randint(0, 2, (*q_shape[:3], 1), generator=rng) * 2 - 1
    levels = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0])
    return q, top[1] * sign * levels[torch.randint(0, 5, (b, kv, s, 1), generator=rng)]


def some_mask(rng, shape, kind):
    b, t, s = shape
    if kind == "some":
        return torch.rand(shape, generator=rng) < 0.5
    if kind == "causal":
        return torch.arange(s) <= torch.arange(t)[:, None] + torch.arange(b)[:, None, None]
    mask = torch.full(shape, kind == "all")
    if kind == "one slot" and s:  # and with "last query only" all others see nothing
        mask[..., draw(rng, 0, s - 1)] = True
    elif kind == "last query only":
        mask[-1:, -1:] = True
    return mask


@exercise(
    "ex2",
    points=1,
    invariant="attention anywhere in what the card admits: every two of heads, sizes, dtypes, "
    "magnitudes of q, k and v, masks and layouts",
    cause="a corner where two others meet, such as large scores and a hidden slot; memory used "
    "again",
)
def test_anywhere_in_attention(student, rng):
    calls = []
    sizes = (
        (1.0, 1.0),
        (1.0, 1.0),
        (1e4, 1e-4),
        (2e-4, 1e4),
        (1e-8, 1.0),
        (1.0, 1e-8),
        (1e-8, 1e-8),
    )
    sizes += ((1e4, 1e4), (1e4, 1.0), (1.0, 1e4))
    masks = ("all", "some", "some", "causal", "one slot", "last query only")
    cases = every_pair(
        rng, (1, 3), ((1, 1), (4, 4), (6, 2), (5, 1), (12, 4)), (0, 1, 5), (0, 1, 7, 80),
        (1, 3, 16, 128, 256), DTYPES, DTYPES, sizes, (1e-8, 1.0, 1e4), masks,
    )  # fmt: skip
    # what is plain but for three things: who is alone, who asks, and in which dtype
    three = [(*bt, dtype) for bt in ((1, 1), (1, 5), (3, 1)) for dtype in DTYPES]
    cases += [
        (b, heads, t, 7, 16, of_q, of_k, sizes[0], 1.0, kind)
        for (b, t, of_q), heads, of_k, kind in every_pair(
            rng, three, ((1, 1), (4, 4), (5, 1)), DTYPES, masks[1:]
        )
    ]
    for b, (h, kv), t, s, d, of_q, of_k, (q_size, k_size), v_size, kind in cases:
        large = q_size * k_size >= 1e4
        d = {3: 16, 128: 256}.get(d, d) if large else d
        shapes = (b, h, t, d), (b, kv, s, d)
        q, k = (some_tokens(rng, x, 1, torch.float32) for x in shapes)
        q, k = (size * x.clamp(-1, 1) for x, size in ((q, q_size), (k, k_size)))
        if large:
            q, k = far_apart(rng, *shapes, q_size, k_size)
        v = v_size * torch.randn(shapes[1], generator=rng).clamp(-1, 1)
        mask = some_mask(rng, (b, t, s), kind)
        calls.append(("attend", q.to(of_q), k.to(of_k), v.to(of_k), mask))
    calls.append(calls[0])  # asked again it comes right behind itself, its result overwritten
    for (_, *args), results in zip(calls, held(student, rng, calls), strict=True):
        for result in results:
            expect_attention(result, *args)


# ---- exercise 3 ------------------------------------------------------------------------------


def drive_turned(student, weight, heads, groups):
    """Runs beside the student's code: a weight that is not contiguous, pooled and repeated."""
    turned = weight[:, None].repeat_interleave(2, 1)[:, 0]
    return student.pool_heads(turned, heads, groups), student.repeat_heads(turned, heads, 2)


@exercise(
    "ex3",
    points=2,
    invariant="row i of group g is the mean of rows i of its heads, for weights and biases",
    cause="heads apart by the number of groups, the dimensions of a group and its heads swapped, "
    "or a view() of a weight that is one",
)
def test_pooling_against_a_loop(student, rng):
    for _ in range(12):
        groups, share, d = draw(rng, 1, 4), draw(rng, 1, 4), draw(rng, 1, 5)
        heads = groups * share
        for shape in ((heads * d,), (heads * d, 3), (heads * d, 1, 2), (heads * d, 2, 1, 2)):
            for size in (1.0, 1e-8, 1e4, 0.0):
                weight = size * torch.randn(shape, generator=rng) if size else torch.ones(shape)
                found = student.pool_heads(weight, heads, groups)
                expect_tensor(found, "pool_heads(...)", torch.float32, (groups * d, *shape[1:]))
                rows = [
                    sum(weight[(g * share + j) * d + i].double() for j in range(share)) / share
                    for g in range(groups)
                    for i in range(d)
                ]
                right = torch.stack(rows)
                # at most 3 additions and a division, each off by 2^-24 of the sizes that are added
                off = 4 * FLOAT32 * weight.abs().max().item()
                expect_close(found, right, what="a pooled weight", atol=off, rtol=FLOAT32)
                if size == 1.0:
                    pooled, repeated = student.drive(drive_turned, weight, heads, groups)
                    expect_close(pooled, right, what="a view, pooled", atol=off, rtol=FLOAT32)
                    rows = weight.unflatten(0, (heads, -1)).repeat_interleave(2, 0).flatten(0, 1)
                    expect_same(repeated, rows, "a view, repeated")
    zeros = torch.zeros(6, 2)
    expect_same(student.pool_heads(zeros, 3, 1), zeros[:2], "heads that are all zero")
    # as many heads as real models have, and more than a byte counts
    for heads, groups in ((32, 1), (32, 8), (32, 16), (32, 32), (512, 256)):
        weight = torch.randn(heads * 2, 3, generator=rng)
        right = weight.double().view(groups, heads // groups, 2, 3).mean(1).flatten(0, 1)
        found = student.pool_heads(weight, heads, groups)
        off = 32 * FLOAT32 * weight.abs().max().item()
        expect_close(found, right, what=f"{heads} heads, pooled", atol=off, rtol=FLOAT32)


@exercise(
    "ex3",
    points=2,
    invariant="head h of the repeated weight is head h // times, exactly, in any dtype",
    cause="weight.repeat, rows in place of heads, or a detour through another dtype",
)
def test_repeating_against_a_loop(student, rng):
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.float16):
        for _ in range(4):
            heads, times, d = draw(rng, 1, 4), draw(rng, 1, 4), draw(rng, 1, 4)
            for shape in ((heads * d,), (heads * d, 3), (heads * d, 2, 1)):
                weight = torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
                found = student.repeat_heads(weight, heads, times)
                rows = [weight[h // times * d + i] for h in range(heads * times) for i in range(d)]
                expect_same(found, torch.stack(rows), "a repeated weight")
        weight = torch.randn(8, 2, generator=rng, dtype=torch.float64).to(dtype)
        right = weight.unflatten(0, (4, 2)).repeat_interleave(8, 0).flatten(0, 1)
        expect_same(student.repeat_heads(weight, 4, 8), right, "each of 4 heads, 8 times")
        right = weight.repeat_interleave(256, 0)
        expect_same(student.repeat_heads(weight, 8, 256), right, "each of 8 heads, 256 times")


@exercise(
    "ex3",
    points=2,
    invariant="means of bfloat16 and float16 heads are taken in float32; dtypes stay, float64 too",
    cause="mean() in bfloat16, which keeps 8 bits of every sum, sums in float16, which end at "
    "65504, or a result that stays in float32",
)
def test_dtypes(student, rng):
    one = torch.randn(1, generator=rng)
    expect_same(student.pool_heads(one, 1, 1), one, "one head of one row")
    expect_close(float(student.pooled_error(one, 1, 1)), 0.0, what="the share of one head")
    for heads, groups, shape in (
        (2, 1, (5,)),
        (3, 1, (5,)),
        (6, 1, (5,)),
        (8, 1, (5,)),
        (6, 2, (40,)),
        (8, 2, (10, 4)),
        (12, 4, ()),
        (3, 1, (5, 2, 4)),
    ):
        weight = (torch.randn(heads * 3, *shape, generator=rng) + 4).bfloat16()
        found = student.pool_heads(weight, heads, groups)
        expect_tensor(found, "pool_heads(bfloat16)", torch.bfloat16, (groups * 3, *shape))
        right = weight.double().view(groups, heads // groups, 3, *shape).mean(1).flatten(0, 1)
        # the last bit where the exact mean is not near a tie, which float32 may round either way
        grid = 2.0 ** (right.abs().log2().floor() - 7)
        near = ((right / grid - (right / grid).floor()) - 0.5).abs() < 1e-3
        wrong = (found.double() - right).abs() > 0.5 * grid * (1 + 1e-3)
        assert not (wrong & ~near).any(), "means of bfloat16 heads are off by more than a rounding"
    many = ([2048.0, 1, 1, 2], 513.0), ([60000.0] * 5, 60000.0), ([-60000.0, -51200.0], -55600.0)
    for rows, right in many:
        half = torch.tensor(rows)[:, None].half()
        found = student.pool_heads(half, len(rows), 1)
        expect_same(found, torch.tensor([[right]]).half(), "the mean of float16 heads")
    for size in (2.0**-27, 2.0**17):  # no numbers of float16
        weight = size * torch.tensor([[1.0], [3.0]]).bfloat16()
        right = torch.tensor([[2 * size]]).bfloat16()
        expect_same(student.pool_heads(weight, 2, 1), right, "the mean of tiny or large heads")
    for shape in ((12,), (12, 2), (12, 2, 3)):
        weight = torch.randn(shape, generator=rng, dtype=torch.float64)
        for groups in (1, 3):
            found = student.pool_heads(weight, 6, groups)
            expect_tensor(found, "pool_heads(float64)", torch.float64)
            right = weight.unflatten(0, (groups, 6 // groups, 2)).mean(1).flatten(0, 1)
            expect_close(found, right, what="float64 heads", rtol=1e-14, atol=1e-15)


def drive_share_of_view(student, weight, heads, groups):
    """Runs beside the student's code: the share of a weight that is not contiguous."""
    return student.pooled_error(weight.T.contiguous().T, heads, groups)


@exercise(
    "ex3",
    points=2,
    invariant="the share against float64, 0 for equal heads; whatever does not divide: ValueError",
    cause="a root that was taken or left out, means over rows, or a check of one of the two sizes",
)
def test_shares_against_float64(student, rng):
    for groups, share, d in ((2, 3, 2), (1, 4, 3), (3, 1, 2), (8, 4, 1), (16, 2, 1), (256, 2, 1)):
        heads = groups * share
        weight = torch.randn(heads * d, 4, generator=rng) + torch.randn(1, 4, generator=rng)
        found = expect_number(student.pooled_error(weight, heads, groups), "pooled_error(...)")
        for size in (1e-8, 1e4):  # the largest number
            scaled = weight / weight.abs().max() * size
            share_of = student.pooled_error(scaled, heads, groups)
            expect_close(float(share_of), found, what="a scaled weight", rtol=1e-4, atol=1e-12)
        bias = weight.flatten()  # as many heads, of 4 d rows
        one = student.pooled_error(bias, heads, groups)
        expect_close(float(one), found, what="the share of a bias", rtol=1e-4, atol=1e-12)
        view = student.drive(drive_share_of_view, weight, heads, groups)
        expect_close(float(view), found, what="the share of a view", rtol=1e-4, atol=1e-12)
        deep = student.pooled_error(weight.unflatten(1, (2, 2)), heads, groups)
        expect_close(float(deep), found, what="three dimensions", rtol=1e-4, atol=1e-12)
        double = float(student.pooled_error(weight.double(), heads, groups))
        expect_close(double, found, what="the share of a float64 weight", rtol=1e-4, atol=1e-12)
        by_head = weight.double().view(groups, share, d, 4)
        lost = (by_head - by_head.mean(1, keepdim=True)).square().sum()
        right = (lost / weight.double().square().sum()).item()
        expect_close(float(found), right, what="the share", rtol=1e-4, atol=1e-12)
        equal = weight[:d].repeat(heads, 1)
        found = float(student.pooled_error(equal, heads, groups))
        expect_at_most(found, 1e-12, "equal heads: the share")
    # 1 + 2^-13 and 1 - 2^-13 lose 2^-26; their squares are no float32.  Who scales first rounds
    # both by 2^-24, 2^-10 of the distance and 2^-9 of its square
    nearly = torch.tensor([[1 + 2.0**-13], [1 - 2.0**-13]])
    found = float(student.pooled_error(nearly, 2, 1))
    expect_close(found, 2.0**-26, what="the share of heads that are nearly equal", rtol=2.0**-8)
    # and of 2^-18, which scaled float32 numbers know to 2^-6
    nearly = torch.tensor([[1 + 2.0**-18], [1 - 2.0**-18]])
    found = float(student.pooled_error(nearly, 2, 1))
    expect_close(found, 2.0**-36, what="the share of heads 2^-17 apart", rtol=2.0**-3)
    large = 1e4 * torch.ones(128, 160)  # squares add up to 2e12
    large[64:] = 0.0
    found = float(student.pooled_error(large, 2, 1))
    expect_close(found, 0.5, what="the share of a large weight", rtol=1e-4)
    for heads, groups in ((6, 4), (5, 5), (0, 1), (-2, 1), (6, 0), (6, -2), (4, 2), (3, 6)):
        expect_error(
            ValueError,
            lambda h=heads, g=groups: student.pool_heads(torch.ones(6, 2), h, g),
            f"{groups} groups of {heads} heads in 6 rows",
        )
        expect_error(
            ValueError,
            lambda h=heads, g=groups: student.pooled_error(torch.ones(6, 2), h, g),
            f"the share of {groups} groups of {heads} heads in 6 rows",
        )
    calls = [("pool_heads", torch.ones(6, 2), 4, 2), ("repeat_heads", torch.ones(6, 2), 4, 2)]
    calls += [("pooled_error", torch.ones(6, 2), 3, 2), ("pool_heads", torch.ones(6, 2), 3, 0)]
    refused(student, calls)
    calls = []
    for dtype in (torch.float32, torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for shape in ((12,), (12, 3), (12, 2, 3)):
            weight = torch.randn(shape, generator=rng).to(dtype)
            calls += [("pool_heads", weight, 6, 3), ("repeat_heads", weight, 6, 2)]
            if dtype in (torch.float32, torch.float64):
                calls.append(("pooled_error", weight, 6, 3))
    again(student, calls)
    for heads, times in ((4, 2), (4, 1), (0, 2), (-2, 1), (2, -1)):
        expect_error(
            ValueError,
            lambda h=heads, t=times: student.repeat_heads(torch.ones(6, 2), h, t),
            f"{heads} heads {times} times",
        )


def drive_refused_laid(student, calls):
    """Runs beside the student's code: what calls (name, *args) raised, and whether an argument is
    another one afterwards; every second time tensors are views."""
    said = []
    for turn, (name, *args) in enumerate(calls):
        given = [x.clone() if hasattr(x, "clone") else x for x in args]
        if turn % 2:
            given = [x[..., None].repeat_interleave(2, -1)[..., 0] if hasattr(x, "clone") else x
                     for x in given]  # fmt: skip
        kind = "nothing"
        try:
            getattr(student, name)(*given)
        except Exception as error:
            kind = type(error).__name__
            kind = "ValueError" if isinstance(error, ValueError) else kind
        same = all(
            x.equal(y) if hasattr(x, "equal") else True for x, y in zip(args, given, strict=True)
        )
        said.append([kind, same])
    return said


def refused_laid(student, calls):
    """As `refused`, and each call with a view, too."""
    calls = [call for call in calls for _ in range(2)]
    found = student.drive(drive_refused_laid, calls)
    for (name, *args), (kind, same) in zip(calls, found, strict=True):
        shown = [f"{tuple(x.shape)} {x.dtype}" if hasattr(x, "shape") else x for x in args]
        assert kind == "ValueError", f"{name}{shown}: {kind} in place of ValueError"
        assert same, f"{name}{shown}: an argument was changed before the ValueError"


def some_heads(rng, groups, share, d, rest, dtype, size, kind):
    """A weight [groups share d, *rest] of this largest size, of a kind."""
    head = torch.randn(groups, 1, d, *rest, generator=rng, dtype=torch.float64)
    each = torch.randn(groups, share, d, *rest, generator=rng, dtype=torch.float64)
    if kind == "equal":
        each = head.expand_as(each)
    elif kind == "near":  # a mean of few digits, and what is apart
        each = head + 2.0 ** -draw(rng, 5, 15) * each
    elif kind == "one sign":
        each = each.abs() + 1
    elif kind == "one head":
        alone = torch.arange(share) == draw(rng, 0, share - 1)
        each = each * alone.view(-1, 1, *(1 for _ in rest))
    elif kind == "wide":
        each = each * 10.0 ** (-8 * torch.rand(each.shape, generator=rng, dtype=torch.float64))
    largest = each.abs().max().clamp(min=1e-300)
    return (size * each / largest).flatten(0, 2).to(dtype)


def expect_pooled(found, weight, heads, groups, what):
    """Means in float64, within the roundings of float32 (or float64) and one to the dtype."""
    d = len(weight) // heads
    shape = groups * d, *weight.shape[1:]
    expect_tensor(found, what, weight.dtype, shape)
    by_head = weight.double().reshape(groups, heads // groups, d, *weight.shape[1:])
    right = by_head.mean(1).reshape(shape)
    unit = 2.0**-53 if weight.dtype == torch.float64 else FLOAT32
    bound = (heads // groups + 2) * unit * by_head.abs().mean(1).reshape(shape)
    if weight.dtype in (torch.bfloat16, torch.float16):
        bound = bound + half_step(right.abs() + bound, weight.dtype)
    expect_at_most((found.double() - right).abs(), bound + 2.0**-148, what)


def expect_share(found, weight, heads, groups, what):
    """The share in float64, within what differences in float32 of a scaled weight can do."""
    found = float(expect_number(found, what))
    by_head = weight.double().reshape(groups, heads // groups, -1)
    apart = (by_head - by_head.mean(1, keepdim=True)).abs()
    slack = (heads // groups + 4) * FLOAT32 * by_head.abs().amax(1, keepdim=True)
    all_of = by_head.square().sum()
    right = (apart.square().sum() / all_of).item()
    bound = ((2 * apart * slack + slack**2).sum() / all_of).item()
    expect_close(found, right, what=what, atol=bound + (2 * weight.numel() + 8) * FLOAT32 * right)


@exercise(
    "ex3",
    points=1,
    invariant="all three functions, anywhere in what the card admits: every two of heads, groups, "
    "sizes, dtypes, magnitudes and layouts, and what is refused with each",
    cause="a corner where two others meet, such as one group and float64; or memory used again",
)
def test_anywhere_in_heads(student, rng):
    calls, checks, bad = [], [], []
    kinds = ("plain", "equal", "near", "one sign", "one head", "wide")
    dtypes = (*DTYPES, torch.float64)
    for groups, share, d, rest, dtype, size, kind, times, misfit in every_pair(
        rng, (1, 2, 8, 33), (1, 2, 3, 8, 33), (1, 2, 5), ((), (1,), (3,), (2, 2), (2, 1, 2)),
        dtypes, (1e-8, 1.0, 1e4), kinds, (1, 2, 3, 8), range(14),
    ):  # fmt: skip
        share = 3 if groups * share > 300 else share
        weight = some_heads(rng, groups, share, d, rest, dtype, size, kind)
        heads, what = groups * share, f"{groups} of {groups * share} heads, {kind}, {dtype}"
        calls += [("pool_heads", weight, heads, groups), ("repeat_heads", weight, heads, times)]
        checks.append((expect_pooled, weight, heads, groups, f"pooled, {what}"))
        rows = weight.unflatten(0, (heads, -1))[torch.arange(heads * times) // times]
        checks.append((expect_same, rows.flatten(0, 1), f"repeated {times} times, {what}"))
        if dtype in (torch.float32, torch.float64):
            calls.append(("pooled_error", weight, heads, groups))
            checks.append((expect_share, weight, heads, groups, f"the share, {what}"))
        bad += misfits(weight, heads, groups, misfit)
    calls += calls[:2]  # asked again they come right behind themselves, the results overwritten
    checks += checks[:2]
    for (check, *args), results in zip(checks, held(student, rng, calls), strict=True):
        for result in results:
            check(result, *args)
    refused_laid(student, bad)


def misfits(weight, heads, groups, which):
    """Calls that the card refuses, with this weight; the last number: of groups, or of times."""
    n = len(weight)
    numbers = ((0, 1), (-1, 1), (0, 0), (n, 0), (n, -1), (1, 0), (1, -1), (-n, -n), (n + 1, 1),
               (2 * n, 2), (n + 1, n + 1), (heads, 2 * heads), (1, 2),
               (heads, groups + 1))  # fmt: skip
    (h, number), calls = numbers[which], []
    if h < 1 or number < 1 or n % h or h % number:
        calls.append(("pool_heads", weight, h, number))
        if weight.dtype in (torch.float32, torch.float64):
            calls.append(("pooled_error", weight, h, number))
    if h < 1 or number < 1 or n % h:
        calls.append(("repeat_heads", weight, h, number))
    return calls


# ---- exercise 4 ------------------------------------------------------------------------------


def per_token_bits(values, bits, group):
    return values * (bits + (Fraction(32, group) if group else 0))


def on_the_edge(count):
    """Whether the last bits of the student's cache_bytes, a float, decide how many fit."""
    return abs(count - round(count)) < Fraction(1, 10**9) * max(count, 1)


@exercise(
    "ex4",
    points=2.5,
    invariant="that many sequences fit and one more does not, exactly; 0 where the weights do not",
    cause="a float that loses whole bytes, rounding up, windows or metadata left out",
)
def test_one_more_does_not_fit(student, rng):
    for _ in range(40):
        config, values = random_config(rng)
        parameters, context = draw(rng, 0, 10**6), draw(rng, 1, 100)
        bits, group = draw(rng, 1, 16), [None, 4, 32, 64][draw(rng, 0, 3)]
        weight_bits = [16, 8, 4, 4.15625][draw(rng, 0, 3)]
        each = per_token_bits(kept_values(config, values, context), bits, group)
        weights = parameters * Fraction(weight_bits)
        fits = draw(rng, 0, 30)
        memory = math.ceil((weights + fits * each) / 8)  # just so many
        while on_the_edge((8 * memory - weights) / each) and each > 8:
            memory += 1
        if on_the_edge((8 * memory - weights) / each):
            continue
        right = math.floor((8 * memory - weights) / each)
        for room, expected in ((memory, right), (int(weights // 8) // 2, 0)):
            found = student.max_batch(config, parameters, room, context, weight_bits, bits, group)
            assert expect_number(found, "max_batch(...)") == expected or (
                room != memory and weights == 0
            ), f"{found} sequences, expected {expected}"
            assert isinstance(found, int), "the number of sequences is no int"
    # a real model, to the byte: float32 has steps of 1024 there
    for weight_bits, bits, group in (
        (16, 16, None),
        (4.15625, 4, 32),
        (8.1875, 8, 64),
        (32, 16, 32),
    ):
        each = 4096 * per_token_bits(2 * 32 * 4096, bits, group)
        weights = PARAMETERS * Fraction(weight_bits)
        for fits in (1, 7, 500, 5000):
            enough = math.ceil((weights + fits * each) / 8)
            for room, expected in ((enough, fits), (enough - 1, fits - 1)):
                asked = (LLAMA_7B, PARAMETERS, room, 4096, weight_bits, bits, group)
                assert student.max_batch(*asked) == expected, "off by one in a real model"
    small = {"num_hidden_layers": 1, "hidden_size": 1, "num_attention_heads": 1}  # 4 bytes a token
    for parameters, memory, weight_bits, expected in (
        (1, 4, 4, 0),  # half a byte of weights leaves no room for 4
        (1, 5, 4, 1),
        (0, 4, 16, 1),
        (0, 0, 16, 0),
        (1, 4, 1, 0),
    ):
        found = student.max_batch(small, parameters, memory, 1, weight_bits)
        assert found == expected, "weights that are no whole number of bytes, or none"
    for context in (2**17 + 1, 10**6, 10**7):
        found = student.max_batch(small, 1, 12 * context + 2, context)
        assert found == 3, "sequences of so many tokens that three fit"
    found = student.max_batch(small, 1, 400_003, 1)
    assert found == 100_000, "as many sequences as a small model has room for"
    for memory, expected in ((14, 3), (15, 4), (18, 4), (19, 5)):  # 3.75 bytes a sequence
        found = student.max_batch(small, 0, memory, 5, 16, 3)
        assert found == expected, "a cache that is no whole number of bytes"


@exercise(
    "ex4",
    points=1.5,
    invariant="at the crossover the cache is larger than the weights, a token earlier it is not",
    cause="ceil where the division comes out even, or bits of weights or cache that are left out",
)
def test_crossover_from_both_sides(student, rng):
    for _ in range(40):
        config, values = random_config(rng)
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
    for parameters in (0, 1, PARAMETERS):
        for weight_bits in (32, 16, 4, 4.15625, 1.5):
            for bits, group in ((16, None), (2, 32), (8, 64)):
                n = student.crossover(LLAMA_7B, parameters, weight_bits, bits, group)
                each, weights = per_token_bits(2**18, bits, group), parameters * weight_bits
                assert n * each > weights >= (n - 1) * each, "the crossover of a real model"
    latent = {"num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128}
    latent |= {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    n = student.crossover(latent, 10**9, 8)
    each = 61 * 576 * 16  # bits
    assert n * each > 8 * 10**9 >= (n - 1) * each, "the crossover of a model with a latent"
    small = {"num_hidden_layers": 1, "hidden_size": 1, "num_attention_heads": 1}  # 4 bytes a token
    assert student.crossover(small, 6_000_000) == 3_000_001, "a crossover of millions of tokens"
    for parameters, expected in ((63, 8), (64, 9), (65, 9)):  # in 4 bits 31.5, 32 and 32.5 bytes
        found = student.crossover(small, parameters, 4)
        assert found == expected, "weights that are no whole number of bytes"


@exercise(
    "ex4",
    points=3,
    invariant="the first of the largest batches, whatever arguments a lever changes",
    cause="levers that act on top of each other, arguments that a lever may not change, the last "
    "of equal ones, or a search that wants a batch above that without levers",
)
def test_levers_against_brute_force(student, rng):
    for _ in range(15):
        config, values = random_config(rng)
        other, other_values = random_config(rng)
        parameters, context = draw(rng, 1, 10**5), draw(rng, 2, 100)
        memory = int(2 * parameters + draw(rng, 0, 20) * context * values * 2)
        levers = {
            "a": {"weight_bits": [4, 4.15625, 3.5][draw(rng, 0, 2)]},
            "b": {"bits": 4, "group_size": 16},
            "c": {"context": context // 2},
            "d": {"config": other},
            "e": {"memory": memory * 2, "parameters": parameters * 2},
            "f": {"bits": 32},
            "g": {},
            "h": {"parameters": parameters // 2},
            "i": {"group_size": 32},
        }
        order = torch.randperm(len(levers), generator=rng).tolist()
        names = [list(levers)[i] for i in order][: draw(rng, 1, 7)]
        counts = {}
        for name in names:
            new = levers[name]
            mine = (other, other_values) if name == "d" else (config, values)
            kept = kept_values(*mine, new.get("context", context))
            each = per_token_bits(kept, new.get("bits", 16), new.get("group_size"))
            left = 8 * new.get("memory", memory)
            left -= new.get("parameters", parameters) * Fraction(new.get("weight_bits", 16))
            counts[name] = max(0, math.floor(left / each))
        right = max(counts, key=counts.get)
        chosen = {name: levers[name] for name in names}
        found = student.best_lever(config, parameters, memory, context, chosen)
        assert found == right, "another lever is better, or the first of equal ones"
    none = {"x": {"memory": 1}, "y": {"memory": 2}}
    assert student.best_lever(config, 10**6, 10, 5, none) == "x", "no lever helps: the first"
    # what another config has not is not taken from the first: a field, a window, names of layers
    two = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 4}
    for more in (
        {"num_key_value_heads": 1},
        {"head_dim": 1},
        {"sliding_window": 2},
        {"sliding_window": 2, "layer_types": [FULL, SLIDING]},
        {"kv_lora_rank": 2, "qk_rope_head_dim": 1},
    ):
        levers = {"all heads": {"config": two}, "as it is": {}}
        found = student.best_lever(two | more, 0, 10**5, 10, levers)
        assert found == "as it is", "a field of the first config outlives its change"
    levers = {"4.5 bits": {"weight_bits": 4.5}, "less": {"weight_bits": 4.25}}
    room = math.ceil(PARAMETERS * 4.25 / 8) + 2**31  # one sequence beside 4.25 bits
    found = student.best_lever(LLAMA_7B, PARAMETERS, room, 4096, levers)
    assert found == "less", "bits of weights of a lever are not whole numbers"
    assert student.best_lever(two, 0, 64, 1, {"only one": {}}) == "only one", "a single lever"
    levers = {"first": {"memory": 200}, "not one more": {"memory": 250}}  # tokens of 64 bytes
    found = student.best_lever(two, 0, 150, 1, levers)
    assert found == "first", "batches are whole: 3 and nearly 4 are equal"
    for levers, expected in (  # tokens of 64 bytes in 16 bits
        ({"as it is": {}, "fewer": {"parameters": 50}}, "fewer"),
        ({"as it is": {}, "fewer": {"parameters": 50}, "none": {"parameters": 0}}, "none"),
        ({"more": {"parameters": 149}, "as it is": {}}, "as it is"),
        ({"48 bits": {"group_size": 1}, "17 bits": {"group_size": 32}}, "17 bits"),
        ({str(i): {"memory": 200 + 64 * i} for i in range(30)}, "29"),
    ):
        found = student.best_lever(two, 100, 400, 1, levers)
        assert found == expected, "an argument that a lever changes alone, or the last of many"
    # a byte too many, beside more parameters than float32 can count; a token has 64 bytes
    levers = {"as it is": {}, "a token less": {"context": 9}}
    found = student.best_lever(two, 2**24 + 1, 2 * (2**24 + 1) + 639, 10, levers)
    assert found == "a token less", "one byte is missing for ten tokens"
    levers = {"as it is": {}, "one less": {"parameters": 2**24 + 1}}
    found = student.best_lever(two, 2**24 + 2, 2 * (2**24 + 1) + 639, 10, levers)
    assert found == "as it is", "one byte is missing either way, and the first counts"
    wide = {"num_hidden_layers": 1, "hidden_size": 2**17, "num_attention_heads": 2**10}
    levers = {"as it is": {}, "wide": {"config": wide}, "8 bits": {"bits": 8}}
    for config, least in ((two, "8 bits"), (wide, "8 bits")):
        found = student.best_lever(config, 0, 2**24, 16, levers)
        assert found == least, "a hidden size of 131,072"
    levers = {"as it is": {}, "no room": {"memory": 1}, "more room": {"memory": 500}}
    found = student.best_lever(two, 100, 300, 1, levers)
    assert found == "more room", "a lever behind one that does not fit is better"


def room(rng, each, weights, fits, at, exact):
    """Bytes of memory: where `fits` sequences of `each` bits fit beside `weights` bits, by a byte,
    or one less; or where nothing does. exact: whether every order of float operations is."""
    fits = min(fits, int(2**48 // each))
    least = math.ceil((weights + fits * each) / 8)
    memory = {"just": least, "a byte less": least - 1, "nothing": 0, "weights": weights // 8}
    memory["half of the weights"] = weights // 16
    memory["between"] = least + int(each // 16)
    memory = max(0, int(memory[at]))
    if not exact:
        while on_the_edge((8 * memory - weights) / each):
            memory += 1 + int(each) // 1000
    return memory


def fitting(config, values, parameters, memory, context, weight_bits=16, bits=16, group_size=None):
    """max_batch in whole numbers and fractions. values: of a token in all layers."""
    each = per_token_bits(kept_values(config, values, context), bits, group_size)
    return max(0, math.floor((8 * memory - parameters * Fraction(weight_bits)) / each))


WEIGHTS = (1, 1.5, 4, 4.15625, 8.1875, 16, 32)
GROUPS = (None, 1, 2, 32, 64, 4096)
AT = ("just", "a byte less", "between", "weights", "half of the weights", "nothing")
SETTINGS = ("config", "parameters", "memory", "context", "weight_bits", "bits", "group_size")


@exercise(
    "ex4",
    points=1,
    invariant="both counts, anywhere in what the card admits: every two of fields, parameters, "
    "bits, groups, contexts and memories, on the edge and a byte beside it",
    cause="a corner where two others meet, such as metadata and weights of half a byte",
)
def test_anywhere_in_what_fits(student, rng):
    fields = ((1, 2, 32, 64, 61, 126), *SOME_FIELDS[1:])
    parameters, contexts = (0, 1, 7, 999_999, PARAMETERS, 671 * 10**9), (1, 999, 4096, 10**6)
    bits = (1, 2, 3, 4, 16, 32)
    asked, rights = [], []
    for *some, of_all, weight_bits, b, group, context, fits, at in every_pair(
        rng, *fields, parameters, WEIGHTS, bits, GROUPS, contexts, (0, 1, 2, 100, 3000), AT
    ):
        config, values = some_config(*some)
        each = per_token_bits(kept_values(config, values, context), b, group)
        weights = of_all * Fraction(weight_bits)
        exact = config["num_hidden_layers"] not in (61, 126) or not config.get("sliding_window")
        memory = room(rng, each, weights, fits, at, exact)
        case = (config, of_all, memory, context, weight_bits, b, group)
        asked.append(worded(rng, SETTINGS, case, 4))
        rights.append(fitting(config, values, *case[1:]))
    for case, found, right in zip(asked, student.many("max_batch", asked), rights, strict=True):
        assert isinstance(expect_number(found, "max_batch(...)"), int), "max_batch: no int"
        assert found == right, f"max_batch{case}: {found}, not {right}"
    names, asked, rights = [n for n in SETTINGS if n not in ("memory", "context")], [], []
    for *some, of_all, weight_bits, b, group, count, by in every_pair(
        rng, *fields[:-2], (MISSING, None), (MISSING, None, "full"), parameters, WEIGHTS, bits,
        GROUPS, (None, 1, 3, 10**6), (-1, 0, 1),
    ):  # fmt: skip
        config, values = some_config(*some)
        each = per_token_bits(values, b, group)
        if count:  # so many parameters that as many tokens take their bytes, or nearly
            of_all = max(0, int(count * each / Fraction(weight_bits)) + by)
        asked.append(worded(rng, names, (config, of_all, weight_bits, b, group), 2))
        rights.append(math.floor(of_all * Fraction(weight_bits) / each) + 1)
    config, values = some_config(126, 128, 64, MISSING, 576, (None, None), MISSING, None)
    each = per_token_bits(values, 32, 1)  # beside as many bits one more of the weights is little
    for count, by in itertools.product((1, 3, 1000, 10**6), (-1, 0, 1)):
        asked.append(((config, int(count * each) + by, 1, 32, 1), {}))
        rights.append(count if by < 0 else count + 1)
    for case, found, right in zip(asked, student.many("crossover", asked), rights, strict=True):
        assert isinstance(expect_number(found, "crossover(...)"), int), "crossover: no int"
        assert found == right, f"crossover{case}: {found}, not {right}"


def some_lever(rng, kind, base, configs):
    """A lever's changes. base: (config, parameters, memory, context)."""
    _, parameters, memory, context = base
    changes = {
        "nothing": {},
        "as by default": {"bits": 16, "group_size": None, "weight_bits": 16},
        "weights": {"weight_bits": WEIGHTS[draw(rng, 0, 6)]},
        "bits": {"bits": draw(rng, 1, 32)},
        "group": {"group_size": GROUPS[draw(rng, 0, 5)]},
        "both": {"bits": 4, "group_size": 32},
        "parameters": {"parameters": (0, parameters // 2, 2 * parameters)[draw(rng, 0, 2)]},
        "memory": {"memory": (0, memory // 3, memory + 7, 2 * memory)[draw(rng, 0, 3)]},
        "context": {"context": (context // 64, context // 2, context)[draw(rng, 0, 2)] + 1},
        "config": {"config": configs[draw(rng, 0, len(configs) - 1)][0]},
    }
    if kind != "all":
        return changes[kind]
    some = [changes[k] for k in changes if draw(rng, 0, 1)]
    return {name: value for change in some for name, value in change.items()}


@exercise(
    "ex4",
    points=1,
    invariant="levers anywhere in what the card admits: every two of a config, a memory, a number "
    "of levers and what they change, names that look alike, equal ones among them",
    cause="a corner where two others meet, such as a single lever with which nothing fits",
)
def test_anywhere_in_levers(student, rng):
    kinds = ("nothing", "as by default", "weights", "bits", "group", "both", "parameters", "memory")
    kinds += ("context", "config", "all")
    calls, rights = [], []
    for *some, weigh, (fits, at), context, count, kind in every_pair(
        rng, (2, 32, 64), *SOME_FIELDS[1:], (0, 0.3, 5, 2000),
        ((0, "nothing"), (0, "just"), (1, "just"), (2, "between"), (50, "a byte less")),
        (1, 999, 4096), (1, 2, 3, 9, 70), kinds,
    ):  # fmt: skip
        pairs = [some_config(*some)]
        pairs += [some_config(n * some[0] // 2, *some[1:6], MISSING, None) for n in (1, 4)]
        each = per_token_bits(kept_values(*pairs[0], context), 16, None)
        parameters = int(weigh * each) // 16  # as many bits as so many sequences
        memory = room(rng, each, 16 * parameters, fits, at, True)
        base = (pairs[0][0], parameters, memory, context)
        names = ["", " ", "0", "1", "a", "A", "b", *map(str, range(10, 75))]
        names = [names[i] for i in torch.randperm(len(names), generator=rng).tolist()]
        order = [kind] + [kinds[draw(rng, 0, 10)] for _ in range(count - 1)]
        levers = {n: some_lever(rng, k, base, pairs) for n, k in zip(names, order, strict=False)}
        if count > 1 and draw(rng, 0, 1):  # of two equal ones the first
            levers["twin"] = dict(levers[names[draw(rng, 0, count - 1)]])
        counts = {}
        for name, changes in levers.items():
            new = dict(zip(SETTINGS, base, strict=False)) | changes
            (values,) = (v for config, v in pairs if config is new["config"])
            counts[name] = fitting(new.pop("config"), values, **new)
        calls.append(((*base, levers), {}))
        rights.append((right := max(counts, key=counts.get), counts))
        for best in ("", "0", " ") if count in (2, 3) else ():  # names are names
            other = {n: best if n == right else f"{n}_" for n in levers}
            calls.append(((*base, {other[n]: changes for n, changes in levers.items()}), {}))
            rights.append((best, {other[n]: most for n, most in counts.items()}))
    found = student.many("best_lever", calls)
    for name, (right, counts) in zip(found, rights, strict=True):
        assert isinstance(name, str) and name == right, f"best_lever: {name!r}, of batches {counts}"
    refused(student, [("best_lever", *args[:4], {}) for args, _ in calls[:8]])


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
    points=2,
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
    for shape, groups in (
        ((1, 1, 1, 1), 1),  # sizes of 1, and one group alone
        ((1, 2, 6, 1), 1),
        ((3, 1, 1, 4), 1),
        ((6, 1, 320, 4), 80),  # many rows, and a long text of many groups
        ((1, 1, 2, 128), 64),
    ):
        x = 5 * torch.randn(shape, generator=rng)
        x *= 1 + torch.arange(shape[0])[:, None, None, None] + torch.arange(shape[2])[:, None]
        for direction, size in (("channel", shape[2]), ("token", shape[3])):
            group = size // math.gcd(groups, size)
            x_hat = decode(student, *encode(student, x, 4, group, direction), direction)
            error = (x_hat - x.double()).abs()
            expect_at_most(error, bound(x, 4, group, direction), "an error")
    near = 1000 + torch.rand(1, 1, 8, 8, generator=rng) / 16  # narrow, not equal: a scale is stored
    for direction in ("channel", "token"):
        scale = encode(student, near, 2, 8, direction)[1]
        assert (scale > 0).all(), "a narrow range far from 0 has no scale"


@exercise(
    "ex5",
    points=2,
    invariant="codes belong to the scale and smallest value that are stored in float16",
    cause="codes from the float32 scale: at 8 bits the stored one moves the last by up to a tenth; "
    "a `low` that is another number than the minimum, such as a whole number of steps",
)
def test_codes_belong_to_what_is_stored(student, rng):
    noise = torch.rand(1, 2, 16, 16, generator=rng) * 2 - 1
    for direction, group in (("channel", 8), ("token", 16)):
        for bits, x in (
            (8, noise * 1.5 + 1001.5),  # m is off by up to a quarter
            (2, noise * 30000),
            (1, noise * 30000),
            (8, noise * 30000),
            (8, noise * 1e-2),
            (2, noise * 1e-5),  # scales below 2^-14, where float16 has steps of 2^-24
            (4, noise.bfloat16() * 40),
        ):
            codes, scale, low = encode(student, x, bits, group, direction)
            dim, steps = 2 if direction == "channel" else 3, 2**bits - 1
            groups = x.double().unflatten(dim, (-1, group))
            s, m = scale.double().unsqueeze(dim + 1), low.double().unsqueeze(dim + 1)
            least = groups.amin(dim + 1)
            expect_same(low, least.half(), "`low`, the minimum in float16,")
            right = (groups.amax(dim + 1) - least) / steps
            off = FLOAT16 * right * 1.01 + 2.0**-25  # one rounding, and float32's before it
            expect_at_most((scale.double() - right).abs(), off, "a scale, off its range / steps,")
            exact = ((groups - m) / s).clamp(0, steps).reshape(x.shape)
            # (x - m) / s in float32: the subtraction and the division round once each
            limit = 0.5 + 4 * FLOAT32 * (steps + (x.double().abs().max() / s.min()))
            off = (codes.double() - exact).abs()
            expect_at_most(off, limit, "a code, off its exact value,")
            back = decode(student, codes, scale, low, direction)
            right = (codes.double().unflatten(dim, (-1, group)) * s + m).reshape(x.shape)
            unit = 4 * FLOAT32 * (s * steps + m.abs()).max().item()
            expect_close(back, right, what="x_hat of these codes", atol=unit)
    for direction, shape in (("channel", (2, 1, 3, 4)), ("token", (2, 1, 6, 2))):
        dim, group = (2, 2) if direction == "channel" else (3, 2)
        codes = torch.randint(0, 256, (2, 1, 6, 4), generator=rng).to(torch.uint8)
        s, m = (torch.randn(shape, generator=rng).half() for _ in range(2))
        back = decode(student, codes, s.abs(), m, direction)
        right = codes.double() * s.abs().double().repeat_interleave(group, dim)
        right += m.double().repeat_interleave(group, dim)
        expect_close(back, right, what="x_hat of codes of the test", atol=2000 * FLOAT32)


@exercise(
    "ex5",
    points=2,
    invariant="constant and tiny ranges come back as their smallest value, bfloat16 in float32",
    cause="a division by a scale that is 0 in float16, differences in bfloat16, results in "
    "bfloat16",
)
def test_groups_without_range_and_bfloat16(student, rng):
    for direction in ("channel", "token"):
        zeros = torch.zeros(1, 1, 8, 8)
        back = decode(student, *encode(student, zeros, 4, 4, direction), direction)
        expect_same(back, zeros, "zeros")
        for size in (1e-7, 1e-6):  # steps of float16 are 6e-8 there
            x = size * torch.rand(1, 1, 8, 8, generator=rng)
            codes, scale, low = encode(student, x, 1, 8, direction)
            least = x.unflatten(dim := 2 if direction == "channel" else 3, (-1, 8)).amin(dim + 1)
            expect_same(low, least.half(), "tiny numbers: `low`, the minimum in float16,")
            back = decode(student, codes, scale, low, direction)
            expect_at_most((back - x.double()).abs(), size / 2 + 2.0**-24, "tiny numbers: an error")
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
    for group, direction in ((8, "channel"), (12, "token"), (3, "token"), (-4, "channel"),
                             (0, "channel"), (4, "Channel"), (4, "channels"), (4, "time"),
                             (4, ""), (4, "chan"), (4, "tok"), (4, "e"), (4, "channel "),
                             (4, "channel token"), (4, None), (4, 2), (4, 3)):  # fmt: skip
        expect_error(
            ValueError,
            lambda g=group, way=direction: student.quantize(y, 4, g, way),
            f"groups of {group} per {direction!r} of [2, 3, 12, 8]",
        )
    refused(student, [("quantize", y, 4, 5, "channel"), ("quantize", y, 4, 4, "both")])
    calls = []
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        for direction in ("channel", "token"):
            x = torch.randn(2, 3, 8, 8, generator=rng).to(dtype)
            calls.append(("quantize", x, 4, 4, direction))
            codes = torch.randint(0, 16, (2, 3, 8, 8), generator=rng).to(torch.uint8)
            groups = (2, 3, 2, 8) if direction == "channel" else (2, 3, 8, 2)
            s, m = (torch.randn(groups, generator=rng).half() for _ in range(2))
            calls.append(("dequantize", codes, s.abs(), m, direction))
    again(student, calls)


def in_groups(x, group, direction):
    """float64 with the group's entries last but one dimension behind: (groups, its dimension)."""
    dim = 2 if direction == "channel" else 3
    return x.double().unflatten(dim, (-1, group)), dim + 1


def scales_of(groups, dim, bits):
    """The least and the largest float16 scale that float32 makes of these groups' ranges."""
    right = (groups.amax(dim, keepdim=True) - groups.amin(dim, keepdim=True)) / (2**bits - 1)
    return [(right * (1 + by * 4 * FLOAT32)).half().double() for by in (-1, 1)]


def expect_stored(value, x, bits, group, direction, what):
    """Codes, scale and low of every group against float64; at ties either code will do."""
    codes, scale, low = checked(value, x, bits, group, direction)
    groups, dim = in_groups(x, group, direction)
    expect_same(low, groups.amin(dim).half(), f"{what}: `low`, the minimum in float16,")
    least, most = (s.squeeze(dim) for s in scales_of(groups, dim, bits))
    good = (least <= scale.double()) & (scale.double() <= most)
    assert good.all(), f"{what}: {int((~good).sum())} of {good.numel()} scales are others"
    s, m = (part.double().unsqueeze(dim) for part in (scale, low))
    exact = (groups - m) / torch.where(s > 0, s, math.inf)
    # a subtraction and a division round once each, in either order
    slack = 4 * FLOAT32 * (exact.abs() + groups.abs() / torch.where(s > 0, s, math.inf))
    off = (codes.double().unflatten(dim - 1, (-1, group)) - exact.clamp(0, 2**bits - 1)).abs()
    expect_at_most(off, torch.where(s > 0, 0.5, 0.0) + slack, f"{what}: a code, off its value,")


def expect_decoded(x_hat, codes, scale, low, direction, what):
    expect_tensor(x_hat, what, torch.float32, tuple(codes.shape))
    dim = 2 if direction == "channel" else 3
    groups = codes.double().unflatten(dim, (scale.shape[dim], -1))
    step, least = groups * scale.double().unsqueeze(dim + 1), low.double().unsqueeze(dim + 1)
    bound = 4 * FLOAT32 * (step + least.abs())
    right = (step + least).reshape(codes.shape)
    expect_at_most((x_hat.double() - right).abs(), bound.reshape(codes.shape), what)


def some_groups(rng, shape, group, direction, kind, dtype):
    """States of a kind, as group by group it may be."""
    x = torch.randn(shape, generator=rng).clamp(-4, 4)
    if kind == "each group another":
        sizes = 10.0 ** torch.randint(-8, 4, (), generator=rng).item()
        x = x * sizes * 10.0 ** (torch.rand(shape[2], shape[3], generator=rng) - 0.5)
    groups, dim = in_groups(x, group, direction)
    if kind == "constant":
        some = torch.tensor([-3.3, 0.1, 3001.0, -20001.0])  # the last two are no float16
        some = some[torch.randint(4, groups.amin(dim, keepdim=True).shape, generator=rng)]
        groups = some.double().expand_as(groups).clone()
        if groups.shape[dim - 1] > 1:  # one of them is not
            groups.select(dim - 1, draw(rng, 0, groups.shape[dim - 1] - 1)).copy_(
                in_groups(x, group, direction)[0].select(dim - 1, 0)
            )
    elif kind == "one entry apart":
        groups = groups.amin(dim, keepdim=True) + 0 * groups
        groups.select(dim, draw(rng, 0, group - 1)).add_(draw(rng, 1, 9))
    elif kind == "plain" and groups.shape[dim - 1] > 1:  # one group is constant
        groups.select(dim - 1, draw(rng, 0, groups.shape[dim - 1] - 1)).fill_(3001.0)
    x = groups.reshape(shape).float()
    sizes = {"tiny": 2e-7, "subnormal": 2e-5, "large": 7500.0, "far": 0.01}
    x = x * sizes.get(kind, 1.0)
    if kind == "far":
        x = x.abs() + 1000
    if kind == "negative":
        x = -x.abs() - 2
    if kind == "ties":
        x = (2 * x).round()
    x = 0 * x if kind == "zeros" else x
    if kind == "large":
        x.view(-1)[draw(rng, 0, x.numel() - 1)] = 30_000 * (2 * draw(rng, 0, 1) - 1)
    return x.to(dtype).clamp(-30_000, 30_000)


STATES = ("plain", "constant", "one entry apart", "tiny", "subnormal", "large", "negative", "far",
          "ties", "zeros", "each group another")  # fmt: skip


@exercise(
    "ex5",
    points=1,
    invariant="both functions, anywhere in what the card admits: every two of widths, groups, "
    "directions, sizes, dtypes, magnitudes and layouts, and what is refused with each",
    cause="a corner where two others meet, such as 1 bit and a constant group; or memory used "
    "again",
)
def test_anywhere_in_codes(student, rng):
    calls, checks, bad = [], [], []
    types, directions = (torch.float32, torch.bfloat16), ("channel", "token")
    for group, count, other, b, h, bits, direction, dtype, kind, of_scale in every_pair(
        rng, (1, 2, 3, 16, 80), (1, 2, 5), (1, 2, 9), (1, 3), (1, 2), range(1, 9), directions,
        types, STATES, ("plain", "zeros", "subnormal", "large"),
    ):  # fmt: skip
        sizes = (group * count, other) if direction == "channel" else (other, group * count)
        x = some_groups(rng, (b, h, *sizes), group, direction, kind, dtype)
        what = f"{bits} bits, G {group}, {direction}, x {list(x.shape)} {dtype}, {kind}"
        calls.append(("quantize", x, bits, group, direction))
        checks.append((expect_stored, x, bits, group, direction, what))
        shape = (b, h, count, other) if direction == "channel" else (b, h, other, count)
        codes = torch.randint(0, 2**bits, x.shape, generator=rng).to(torch.uint8)
        top = {"plain": 1.0, "zeros": 0.0, "subnormal": 2e-6}.get(of_scale, 60_000 / (2**bits - 1))
        s = top * torch.rand(shape, generator=rng)
        low = x.float().flatten()[: math.prod(shape)].reshape(shape)
        calls.append(("dequantize", codes, s.half(), low.half(), direction))
        checks.append((expect_decoded, codes, s.half(), low.half(), direction, f"x_hat, {what}"))
    for bits, direction in itertools.product(range(1, 9), directions):  # constants beside ranges
        x = torch.randn(2, 4, 4, 4, generator=rng)
        for i, value in enumerate((-3.3, 0.1, 3001.0, -20001.0)):  # the last two are no float16
            x[:, i].select(2 if direction == "channel" else 1, draw(rng, 0, 3)).fill_(value)
        calls.append(("quantize", x, bits, 4, direction))
        checks.append(
            (expect_stored, x, bits, 4, direction, f"{bits} bits, {direction}, constants")
        )
    for size, other, bits, direction, dtype, kind, wrong in every_pair(
        rng, (1, 2, 6), (1, 2), (1, 2, 8), directions, types, STATES[::2], range(12)
    ):
        sizes = (size, other) if direction == "channel" else (other, size)
        x = some_groups(rng, (2, 1, *sizes), size, direction, kind, dtype)
        faults = [(g, direction) for g in (0, -1, -size, size + 1, 2 * size, 4 * size, 7)]
        faults += [(1, name) for name in ("", "row", "channels", "Token", "chan")]
        bad.append(("quantize", x, bits, *faults[wrong]))
    calls += calls[:2]  # asked again they come right behind themselves, the results overwritten
    checks += checks[:2]
    for (check, *args), results in zip(checks, held(student, rng, calls), strict=True):
        for result in results:
            check(result, *args)
    refused_laid(student, bad)


# ---- exercise 6 ------------------------------------------------------------------------------


def drive_window(student, settings, pieces, how):
    """Runs beside the student's code: returns (keys, values, bits held) after each piece.

    how: "spoil" overwrites what went in and came out, as others may do; "views" passes tensors
    that are not contiguous.
    """
    cache, out, held = student.QuantizedCache(*settings), [], []
    for k, v in pieces:
        k, v = k.clone(), v.clone()
        if how == "views":
            k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v))
        parts = cache.append(k, v)
        out.append((*(p.clone() for p in parts), cache.bits_held(), k.clone(), v.clone()))
        if how == "spoil":
            for tensor in (k, v, *parts):
                tensor.zero_()
        held.append([] if how == "spoil" else list(parts))
    return [(*result, parts) for result, parts in zip(out, held, strict=True)]


def window(student, settings, pieces, how="plain"):
    """Results of `drive_window`, with the checks that every use needs."""
    results = student.drive(drive_window, settings, pieces, how)
    assert isinstance(results, list) and len(results) == len(pieces), "the cache stopped early"
    total, checked = 0, []
    for (k, v), result in zip(pieces, results, strict=True):
        total += k.shape[2]
        assert len(result) == 6, "append must return (keys, values)"
        keys, values, bits, *given, later = result
        for now, then in zip(later, (keys, values), strict=False):
            expect_same(now, then, "what an earlier call returned")
        assert isinstance(bits, int), f"bits_held returned a {type(bits).__name__}, not an int"
        expect_same(given[0], k, "k, which append must leave as it was,")
        expect_same(given[1], v, "v, which append must leave as it was,")
        shape = (*k.shape[:2], total, k.shape[3])
        expect_tensor(keys, "the keys", k.dtype, shape)
        expect_tensor(values, "the values", k.dtype, shape)
        checked.append((keys, values, bits))
    return checked


def expect_bits(found, right, what):
    """Equal bit by bit: a zero has its sign, too."""
    expect_same(found, right, what)
    assert found.signbit().equal(right.signbit()), f"{what}: a zero has another sign"


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
    return x[0] / 4.1 - 2, x[1] / 8.2 + 1


def lengths_of(rng, total):
    """Random pieces that add up to `total`."""
    cuts = sorted({0, total, *(draw(rng, 1, total - 1) for _ in range(draw(rng, 1, 9)))})
    return list(zip(cuts, cuts[1:], strict=False))


@exercise(
    "ex6",
    points=2,
    invariant="after every call: keys to the last whole R before it rounded, the rest exact",
    cause="what is due counted without the tokens that waited, or from the pieces that came, or "
    "waiting tokens that went through another dtype, or lost the sign of a zero",
)
def test_which_tokens_are_exact(student, rng):
    for group, residual, keys, size in (
        (2, 4, "channel", 1.0),
        (4, 8, "channel", 7000.0),
        (4, 4, "token", 1.0),
        (4, 4, "channel", 1e-8),
        (32, 64, "channel", 1.0),
        (8, 64, "token", 1.0),
        (128, 128, "channel", 1.0),
    ):
        tokens, d = 30 if residual < 30 else 150, group * (8 if group < 100 else 1)
        k, v = (size * torch.randn(2, 2, tokens, d, generator=rng) for _ in range(2))
        k[..., 0] = v[..., 0] = -0.0
        # after each piece a call without tokens: nothing is due by it
        ends = [pair for a, b in lengths_of(rng, tokens) for pair in ((a, b), (b, b))]
        pieces = [(k[:, :, a:b], v[:, :, a:b]) for a, b in ends]
        for (before, after), out in zip(
            ends, window(student, (2, group, residual, keys), pieces), strict=True
        ):
            late = max(0, before - residual)
            old = (before // residual * residual if keys == "channel" else late, late)
            for found, exact, n in zip(out[:2], (k, v), old, strict=True):
                expect_bits(found[:, :, n:], exact[:, :, n:after], "the tokens that wait")
                changed = (found[:, :, :n] != exact[:, :, :n]).any(-1)
                assert changed.all(), "tokens that are due are still exact"
                if size < 1e-6:  # below the steps of float16: no range, and hardly a minimum
                    expect_at_most(found[:, :, :n].abs(), 2.0**-23, "a rounded value")


@exercise(
    "ex6",
    points=2.5,
    invariant="rounded tokens are those of the test's own codes, whatever pieces they came in",
    cause="groups that begin elsewhere, values per channel, or codes of values that were rounded "
    "once",
)
def test_rounded_tokens_against_own_codes(student, rng):
    float32, at_once = torch.float32, [(0, 28)]
    for bits, group, keys, dtype, shift, ends in (
        (2, 4, "channel", float32, 0, lengths_of(rng, 28)),
        (2, 4, "token", float32, 0, lengths_of(rng, 28)),
        (2, 4, "channel", torch.bfloat16, 0, lengths_of(rng, 28)),
        (2, 2, "channel", float32, 0, lengths_of(rng, 28)),
        (3, 4, "channel", float32, 0, lengths_of(rng, 28)),
        (4, 4, "token", float32, 0, at_once),  # the 20 that are due are whole groups of tokens too
        (4, 4, "channel", float32, 1000, lengths_of(rng, 28)),  # float16 has steps of 0.5 there
        (8, 2, "token", float32, 0, lengths_of(rng, 28)),
    ):
        k, v = ((x + shift).to(dtype) for x in states(rng, 28, rows=2))
        pieces = [(k[:, :, a:b], v[:, :, a:b]) for a, b in ends]
        nothing = (k[:, :, :0], v[:, :, :0])
        out = window(student, (bits, group, 8, keys), [*pieces, nothing])[-1]
        for found, exact, n, way in zip(
            out[:2], (k, v), (24 if keys == "channel" else 20, 20), (keys, "token"), strict=True
        ):
            right = rounded(exact[:, :, :n], bits, group, way)
            unit = 1e-5 if dtype == torch.float32 else 4 * BFLOAT16
            # a value halfway between two codes may go either way
            off = (found[:, :, :n].double() - right).abs()
            expect_at_most(off, unit * (1 + right.abs()), "a rounded value, off the test's own,")


def drive_nothing(student, settings):
    """Runs beside the student's code: the bits held before any token has come."""
    return student.QuantizedCache(*settings).bits_held()


def drive_two_windows(student, settings, pieces):
    """Runs beside the student's code: two caches in turn; what the first returns, and its bits.

    Bits are asked for at the end only, and twice.
    """
    cache, other = (student.QuantizedCache(*x) for x in settings)
    out = []
    for k, v in pieces:
        out.append([x.clone() for x in cache.append(k, v)])
        other.append(v, k)
    return out, [cache.bits_held(), cache.bits_held()]


def drive_bytes_kept(student, settings, k, v, prompt):
    """Runs beside the student's code: bytes of the tensors, and of what else, a cache keeps alive.

    The first `prompt` tokens come at once, the others one by one; then none, for all of them.
    """
    import gc
    import sys
    import types

    import torch

    def besides(cache):
        """Bytes of arrays, and of what else is no tensor, that the cache reaches."""
        skip = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, torch.Tensor)
        seen, todo, total = {}, [cache], 0
        while todo:
            x = todo.pop()
            if id(x) in seen or isinstance(x, skip):
                continue
            seen[id(x)] = x
            base = getattr(x, "base", None)  # of an array that is a view
            todo += gc.get_referents(x) + [base]
            size = sys.getsizeof(x) if isinstance(x, (bytes, bytearray, float)) else 0
            total += getattr(x, "nbytes", size) if base is None else 0
        return total

    def alive():
        """Bytes of tensors that were not there before."""
        gc.collect()
        found = [x for x in gc.get_objects() if type(x) is torch.Tensor]
        found = [x for x in found if x.layout == torch.strided]
        held = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in found}
        return sum(held.values())

    gc.freeze()  # what is there already is not looked at: it is half a million objects
    cache = student.QuantizedCache(*settings)
    for a, b in [(0, prompt), *((i, i + 1) for i in range(prompt, k.shape[2]))]:
        cache.append(k[:, :, a:b].clone(), v[:, :, a:b].clone())
    kept = alive() + besides(cache)
    return kept, list(cache.append(k[:, :, :0], v[:, :, :0]))


def long_text(student, rng):
    """Less than half of the floats is kept, says the card, and after many calls codes are as ever.

    Far from 0 `low` is coarser than a step: who rounds decoded tokens again moves them.
    """
    k, v = (1000 + torch.randn(1, 2, 512, 32, generator=rng) / 8 for _ in range(2))
    for keys, prompt, total in (
        ("channel", 384, 512),
        ("token", 448, 512),
        ("channel", 511, 512),
        ("channel", 490, 491),  # one more token, and keys of the prompt wait
    ):
        came = k[:, :, :total], v[:, :, :total]
        kept, found = student.drive(drive_bytes_kept, (2, 32, 32, keys), *came, prompt)
        expect_at_most(kept, 0.5 * 2 * 4 * came[0].numel(), "the bytes that the cache keeps")
        old = total // 32 * 32 if keys == "channel" else total - 32
        for x, out, n, way in zip(came, found, (old, total - 32), (keys, "token"), strict=True):
            expect_tensor(out, "a long text", torch.float32, tuple(x.shape))
            expect_bits(out[:, :, n:], x[:, :, n:], "a long text: tokens that wait")
            expect_old(out[:, :, :n], x[:, :, :n], 2, 32, way, "a long text")


@exercise(
    "ex6",
    points=2,
    invariant="bits held are those of codes, groups and waiting tokens; waiting() says how many; a "
    "long text leaves its codes behind, and little else",
    cause="32 bits for each piece and not each group, float32 counted as 32, batch or heads left "
    "out; a view that keeps the whole prompt, or old pieces that are rounded again into one",
)
def test_bits_held_by_counting(student, rng):
    for group, residual, keys, bits in (
        (2, 4, "channel", 3),
        (4, 8, "token", 8),
        (1, 3, "channel", 1),
        (1, 1, "channel", 2),
    ):
        k, v = (torch.randn(3, 2, 25, 8, generator=rng) for _ in range(2))
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
    for keys in ("channel", "token"):
        assert student.drive(drive_nothing, (2, 4, 8, keys)) == 0, "bits held by nothing"
    long_text(student, rng)
    for tokens, residual in ((0, 1), (1, 1), (5, 1), (32_767, 128), (32_768, 128), (127, 128)):
        found = student.waiting(tokens, residual)
        assert tuple(found) == (tokens % residual, min(tokens, residual)), "waiting() is wrong"


@exercise(
    "ex6",
    points=1,
    invariant="the cache keeps tensors of its own; settings that do not fit raise ValueError",
    cause="a view of what came in or was handed out, or a check of the multiple alone",
)
def test_own_tensors_and_settings(student, rng):
    k, v = states(rng, 20)
    pieces = [(k[:, :, a:b], v[:, :, a:b]) for a, b in lengths_of(rng, 20)]
    nothing = (k[:, :, :0], v[:, :, :0])
    ends = [(0, 4), (4, 8), (8, 11), (11, 20)]  # after the first two no key waits
    steps = [nothing]
    for a, b in ends:
        steps += [(k[:, :, a:b], v[:, :, a:b]), nothing, nothing]
    for settings in ((4, 4, 4), (4, 4, 4, "token"), (2, 2, 8)):
        for given in (pieces, steps):
            if settings == (2, 2, 8):  # keys and values of a model in bfloat16
                given = [(k.bfloat16(), v.bfloat16()) for k, v in given]
            plain = window(student, settings, given)
            spoiled = window(student, settings, given, "spoil")
            views = window(student, settings, given, "views")
            for a, b, c in zip(plain, spoiled, views, strict=True):
                for i, name in ((0, "keys"), (1, "values")):
                    expect_same(b[i], a[i], f"{name} after others changed their tensors")
                    expect_same(c[i], a[i], f"{name} of views")
    for settings, others in (((2, 4, 8), (4, 2, 4, "token")), ((4, 2, 4, "token"), (2, 4, 8))):
        alone = window(student, settings, pieces)
        found, bits = student.drive(drive_two_windows, (settings, others), pieces)
        for one, (keys, values, _) in zip(found, alone, strict=True):
            expect_same(one[0], keys, "keys beside a second cache, bits not asked for")
            expect_same(one[1], values, "values beside a second cache, bits not asked for")
        assert bits == [alone[-1][2]] * 2, "the bits held, asked for twice, beside a second cache"
    # tokens that are all zero are tokens, too
    pieces = [(0 * k[:, :, a:b], 0 * v[:, :, a:b]) for a, b in lengths_of(rng, 20)]
    for found in window(student, (2, 4, 4), pieces)[-1][:2]:
        expect_same(found, 0 * k, "tokens that are all zero")
    # and a text longer than 8 bits count
    k, v = states(rng, 600)
    pieces = [(k[:, :, a:b], v[:, :, a:b]) for a, b in ((0, 590), (590, 600), (600, 600))]
    out = window(student, (2, 4, 8), pieces)[-1]
    for found, exact, n, way in zip(out, (k, v), (600, 592), ("channel", "token"), strict=False):
        right = rounded(exact[:, :, :n], 2, 4, way)
        off = (found[:, :, :n].double() - right).abs()
        expect_at_most(off, 1e-5 * (1 + right.abs()), "a rounded value of a long text")
    for settings in ((2, 0, 4), (2, 4, -4), (2, 8, 4), (2, -2, 4), (2, 4, 4, "value"), (2, 3, 4),
                     (2, -4, -8), (2, -4, -4), (2, 4, 4, ""), (2, 4, 4, None)):  # fmt: skip
        expect_error(
            ValueError,
            lambda s=settings: student.drive(drive_window, s, [], ""),
            f"settings {settings}",
        )


def drive_in_windows(student, cases, ways, spoil, asked):
    """Runs beside the student's code: as many caches as cases (settings, by name, pieces), which
    are fed in turn; of each call what it returned, the bits held, and whether k and v stayed.

    Tensors lie in memory as `ways` says. spoil: of each cache whether what went in and came out is
    overwritten; else it is held, and read at the end. asked: whether bits are asked for each time.
    """
    import itertools

    turn = itertools.cycle(ways)

    def lay(x):
        way = next(turn)
        if way == 1:
            return x.mT.contiguous().mT
        if way == 2:
            return x.repeat_interleave(2, -1).repeat(2, 1, 1, 1)[: len(x), ..., ::2]
        return x.transpose(1, 2).contiguous().transpose(1, 2) if way == 3 else x.clone()

    caches = [student.QuantizedCache(*settings, **named) for settings, named, _ in cases]
    out = [[] for _ in cases]
    for pieces in itertools.zip_longest(*(pieces for *_, pieces in cases)):
        for i, (cache, piece) in enumerate(zip(caches, pieces, strict=True)):
            if piece is None:
                continue
            laid = [lay(x) for x in piece]
            parts = list(cache.append(*laid))
            same = all(x.equal(y) for x, y in zip(laid, piece, strict=True))
            bits = cache.bits_held() if asked[i] else None
            if spoil[i]:
                kept = [p.clone() for p in parts]
                for tensor in (*laid, *parts):
                    tensor.fill_(3)
                parts = kept
            out[i].append([parts, bits, same])
    return [
        [results, [c.bits_held(), c.bits_held()]] for results, c in zip(out, caches, strict=True)
    ]


def expect_old(found, x, bits, group, direction, what):
    """Rounded tokens are those of codes of what came; at ties either code will do."""
    groups, dim = in_groups(x, group, direction)
    seen = in_groups(found, group, direction)[0]
    m = groups.amin(dim, keepdim=True).half().double()
    good = torch.zeros_like(groups, dtype=torch.bool)
    for s in scales_of(groups, dim, bits):
        step = torch.where(s > 0, s, math.inf)
        exact = ((groups - m) / step).clamp(0, 2**bits - 1)
        slack = 4 * FLOAT32 * (exact + groups.abs() / step)
        for code in (exact.floor(), exact.ceil()):
            right = torch.where(s > 0, code * s, 0.0) + m
            bound = 4 * FLOAT32 * (code * s + m.abs())
            bound = bound + half_step(right.abs() + bound, found.dtype)
            good |= ((code - exact).abs() <= 0.5 + slack) & ((seen - right).abs() <= bound)
    assert good.all(), f"{what}: {int((~good).sum())} of {good.numel()} rounded values are others"


def expect_window(results, settings, pieces, what):
    """Of a cache: what waits, what is rounded, and the bits, after every call."""
    (bits, group, residual, keys), total = settings, 0
    came = [torch.cat(parts, 2) for parts in zip(*pieces, strict=True)]
    expected = 0
    assert len(results[0]) == len(pieces), f"{what}: the cache stopped early"
    last = len(pieces) - 1
    for number, ((k, _), (parts, held_bits, same)) in enumerate(
        zip(pieces, results[0], strict=True)
    ):
        assert same, f"{what}: append changed an argument"
        before, total = total, total + k.shape[2]
        late = max(0, before - residual)
        old = (before // residual * residual if keys == "channel" else late, late)
        shape = (*k.shape[:2], total, k.shape[3])
        for x, found, n, way in zip(came, parts, old, (keys, "token"), strict=True):
            expect_tensor(found, f"{what}: a result", k.dtype, shape)
            expect_bits(found[:, :, n:], x[:, :, n:total], f"{what}: tokens that wait")
            if n and number in (last, last // 2):
                expect_old(found[:, :, :n], x[:, :, :n], bits, group, way, what)
            elif n:  # they do not change any more
                final = results[0][last][0][len(way) == 5 and found is parts[1]]
                expect_same(found[:, :, :n], final[:, :, :n], f"{what}: old tokens later")
        waits = (total % residual if keys == "channel" else min(total, residual),)
        each = k.shape[0] * k.shape[1] * k.shape[3]
        expected = sum(
            each * (n * 16 + (total - n) * (bits + Fraction(32, group)))
            for n in (*waits, min(total, residual))
        )
        if held_bits is not None:
            assert isinstance(held_bits, int), f"{what}: bits_held returned no int"
            assert held_bits == expected, f"{what}: {held_bits} bits held, not {expected}"
    good = results[1] == [expected] * 2 and all(type(n) is int for n in results[1])
    assert good, f"{what}: {results[1]} bits held, not {expected}"


def some_pieces(rng, residual, kind):
    """How many tokens each call brings."""
    r = residual
    ones = [1] * min(2 * r + 3, 19)
    return {
        "one by one": ones,
        "at once": [2 * r + 1],
        "one token": [1],
        "no token": [0],
        "just R": [r, 0, 1],
        "R less 1": [r - 1, 1, 1, r],
        "prompt, then one by one": [3 * r + draw(rng, 0, r), *ones[:5]],
        "empty ones": [0, r + 1, 0, 0, 2 * r, 0, 1],
        "drawn": [draw(rng, 0, 2 * r + 1) for _ in range(4)],
    }[kind]


@exercise(
    "ex6",
    points=1,
    invariant="the cache, anywhere in what the card admits: every two of widths, groups, windows, "
    "directions, sizes, dtypes, magnitudes of keys and of values, layouts and pieces",
    cause="a corner where two others meet, such as a window of 1 and keys per token; or a cache "
    "that hands out what it keeps",
)
def test_anywhere_in_windows(student, rng):
    cases, whats, spoil, asked = [], [], [], []
    states = ("plain", "constant", "tiny", "large", "far", "zeros", "ties")
    pieces = ("one by one", "at once", "one token", "no token", "just R", "R less 1")
    pieces += ("prompt, then one by one", "empty ones", "drawn")
    for (group, residual), bits, keys, d, b, h, dtype, of_k, of_v, kind, *how in every_pair(
        rng, ((1, 1), (1, 3), (2, 2), (4, 8), (8, 8), (4, 64)), (1, 2, 3, 4, 8),
        ("channel", "token"), (1, 3), (1, 2), (1, 3), (torch.float32, torch.bfloat16), states,
        states, pieces, (0, 1), (0, 1), (2, 3, 4),
    ):  # fmt: skip
        ends = some_pieces(rng, residual, kind)
        shape = (b, h, sum(ends), d * group)
        longer = (b, h, -(-max(sum(ends), 1) // group) * group, d * group)
        k = some_groups(rng, longer, group, "channel", of_k, dtype)[:, :, : sum(ends)]
        v = some_groups(rng, longer, group, "token", of_v, dtype)[:, :, : sum(ends)]
        settings = (bits, group, residual, keys)
        names = ("bits", "group_size", "residual", "keys")
        named = dict(zip(names[how[2] :], settings[how[2] :], strict=True))
        if keys == "channel" and draw(rng, 0, 1):
            named.pop("keys", None)
        given = list(zip(k.split(ends, 2), v.split(ends, 2), strict=True))
        cases.append((settings[: how[2]], named, given))
        whats.append((settings, f"{settings}, k, v {list(shape)} {dtype}, {of_k}, {of_v}, {kind}"))
        spoil.append(how[0])
        asked.append(how[1])
    found = student.drive(drive_in_windows, cases, drawn_ways(rng), spoil, asked)
    for (*_, given), (settings, what), results in zip(cases, whats, found, strict=True):
        expect_window(results, settings, given, what)


@exercise(
    "ex6",
    points=0.5,
    invariant="settings anywhere in what the card admits and beyond, and waiting() for any two "
    "numbers",
    cause="a check that stands behind another, a formula for small windows, or for large ones",
)
def test_anywhere_in_settings(student, rng):
    sizes = ((1, 0), (0, 1), (0, 0), (-1, 1), (1, -1), (-1, -1), (4, 0), (4, 2), (4, 6), (8, 4),
             (-4, 8), (4, -8), (-4, -4), (32, 33), (128, 64), (3, 1))  # fmt: skip
    fine = ((1, 1), (4, 8), (32, 128))
    bad = [(bits, *size, keys) for bits, size, keys in every_pair(
        rng, (1, 2, 8), sizes, ("channel", "token", "value"))]  # fmt: skip
    names = ("", "channels", "Token", "keys", "value")
    bad += [(bits, *size, keys) for bits, size, keys in every_pair(rng, (1, 2, 8), fine, names)]
    refused(student, [("QuantizedCache", *settings) for settings in bad])
    good = [
        (bits, *size, keys) for bits in (1, 8) for size in fine for keys in ("channel", "token")
    ]
    found = student.drive(drive_made, good)
    assert found == [0] * len(good) and all(type(n) is int for n in found), "bits at first"
    pairs = every_pair(rng, (0, 1, 2, 127, 128, 129, 4095, 10**6, 10**9 + 7), (1, 2, 3, 128, 4096))
    for (tokens, residual), found in zip(
        pairs, student.many("waiting", [(pair, {}) for pair in pairs]), strict=True
    ):
        expect_tuple(found, (int, int), f"waiting({tokens}, {residual})")
        right = (tokens % residual, min(tokens, residual))
        assert found == right, f"waiting({tokens}, {residual}) is {found}, expected {right}"


def drive_made(student, settings):
    """Runs beside the student's code: bits held by new caches with these settings."""
    return [student.QuantizedCache(*one).bits_held() for one in settings]
