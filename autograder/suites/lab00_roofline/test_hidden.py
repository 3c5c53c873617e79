"""Hidden tests of lab00.  Random texts, models, machines and logs, from the test's own seed."""

import math
from fractions import Fraction

import numpy
import torch

from efflib.lab import exercise, expect_close, expect_error, expect_number

ROUNDING = 1e-12  # relative: a few operations on Python's floats, in any order
SUBTRACTED = 1e-9  # the same where what is left of a subtraction is at least 1/1000 of its terms
NEARLY = 1e-5  # the same where it is 1e-9 of them
LARGE = {"vocab_size": 128256, "hidden_size": 16384, "intermediate_size": 53248}
LARGE |= {"num_hidden_layers": 126, "num_attention_heads": 128, "num_key_value_heads": 8}


def draw(rng, low, high):
    """An integer from low to high."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def spread(rng, low, high):
    """A number whose logarithm lies evenly between those of low and high."""
    share = torch.rand((), generator=rng, dtype=torch.float64).item()
    return low * (high / low) ** share


def close(value, expected, what, rtol=ROUNDING):
    value = value.item() if isinstance(value, numpy.number) else value  # a sum of an array
    expect_close(float(expect_number(value, what)), float(expected), what=what, rtol=rtol)


def refused(*cases):
    """cases: (call, what was passed)"""
    for call, what in cases:
        expect_error(ValueError, call, what)


def drive_kept(student, name, calls):
    """Runs beside the student's code: name(*args) for each args of calls, twice, and what a caller
    gets he empties.  Lists, dictionaries and tensors of one call become those of the next; tensors
    lie apart in memory.
    """
    import copy

    import torch

    def become(old, new):
        if isinstance(new, torch.Tensor):
            if isinstance(old, torch.Tensor) and old.shape == new.shape:
                return old.copy_(new)
            return new.repeat_interleave(2)[::2]
        if isinstance(new, list):
            old = old if isinstance(old, list) else []
            before = old + [None] * len(new)
            old[:] = [become(a, b) for a, b in zip(before, new, strict=False)]
            return old
        if isinstance(new, dict):
            old = old if isinstance(old, dict) else {}
            parts = {key: become(old.get(key), part) for key, part in new.items()}
            old.clear()
            old.update(parts)
            return old
        return new

    args, results = [None] * len(calls[0]), []
    for call in calls:
        args = [become(a, b) for a, b in zip(args, call, strict=True)]
        for _ in range(2):
            found = getattr(student, name)(*args)
            results.append(copy.copy(found))
            if isinstance(found, list | dict):
                found.clear()
    return results


def kept(student, name, calls, rights, what, rtol=ROUNDING):
    """Every call has its own result, however much it is like another: see drive_kept."""
    found = student.drive(drive_kept, name, [list(call) for call in calls])
    for value, right in zip(found, [r for r in rights for _ in range(2)], strict=True):
        if isinstance(right, dict):
            same(value, right, what)
        elif isinstance(right, list):
            assert [tuple(w) for w in value] == right, f"{what} are not as they should be"
        else:
            close(value, right, what, rtol)


def drive_after(student, name, bad, good):
    """Runs beside the student's code: whether name(*bad) is refused, and name(*good) after that."""
    refused = False
    try:
        getattr(student, name)(*bad)
    except ValueError:
        refused = True
    return refused, getattr(student, name)(*good)


def after_error(student, name, bad, good):
    """name(*good) in the process in which name(*bad) has just raised ValueError."""
    was_refused, found = student.drive(drive_after, name, list(bad), list(good))
    assert was_refused, f"{name} did not refuse what it has to refuse"
    return found


def drive_floats(student, name, calls):
    """Runs beside the student's code: results as floats (ints of over 64 bits do not travel)."""
    return [float(getattr(student, name)(*args)) for args in calls]


# ---- exercise 1 ------------------------------------------------------------------------------

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def random_texts(rng, base):
    """Texts whose tokens cost up to 12 nats, one of them empty."""
    sizes = [0, 1, *(draw(rng, 1, 40) for _ in range(draw(rng, 1, 6)))]
    order = torch.randperm(len(sizes), generator=rng).tolist()
    dtype = DTYPES[draw(rng, 0, 3)]
    most = 12 / math.log(base)
    return [
        (torch.rand(sizes[i], generator=rng, dtype=torch.float64) * most).to(dtype) for i in order
    ]


def alike_texts():
    """Texts that agree in much: their lengths, the first of them, their sum; and many texts."""
    one = torch.ones(3)
    made = [[one, torch.tensor(row)] for row in ([2.0, 4.0], [6.0, 4.0], [1.0, 4.0], [4.0, 1.0])]
    return [
        *made,
        [torch.arange(3.0), one],
        [torch.full((1,), 1.0 + (i > 150)) for i in range(300)],
    ]


def total(texts):
    return math.fsum(x for text in texts for x in text.double().tolist())


@exercise(
    "ex1",
    points=2,
    invariant="base to the mean loss of all tokens, whatever base, dtype and lengths",
    cause="e or 2 in place of the base, texts that count alike, an empty text",
)
def test_any_texts_in_any_base(student, rng):
    for base in (2, math.e, 1000, *(spread(rng, 1.2, 900) for _ in range(16))):
        texts = random_texts(rng, base)
        right = base ** (total(texts) / sum(len(t) for t in texts))
        close(student.perplexity(texts, base), right, f"perplexity in base {base:g}", 1e-11)
    texts = random_texts(rng, math.e)
    for shown in (texts, [t / 2 for t in texts]):  # texts of one length are not of one loss
        right = math.exp(total(shown) / sum(len(t) for t in shown))
        close(student.perplexity(shown), right, "perplexity without a base", 1e-11)
    close(student.perplexity([torch.zeros(4), torch.zeros(1)], 2), 1, "perplexity of certainty")
    for base, mean in ((2, 60.0), (1000, 100.0)):  # as bad as a model may be
        right = float(base) ** mean
        close(student.perplexity([torch.full((3,), mean)], base), right, "perplexity", 1e-11)
    surprise = [torch.tensor([0.0, 250.0]), torch.zeros(3)]  # the mean alone is bounded
    close(student.perplexity(surprise, 2), 2.0**50, "perplexity with one loss of 250", 1e-11)
    calls = [(texts, base) for base in (2, 3, 1 + 2.0**-10) for texts in alike_texts()]
    rights = [base ** (total(texts) / sum(map(len, texts))) for texts, base in calls]
    kept(student, "perplexity", calls, rights, "perplexity of texts alike", 1e-11)
    certain = [torch.tensor([0.0, 0.0, 5.0]), torch.tensor([3.0])]  # 8 bits for 4 tokens
    close(student.perplexity(certain, 2), 4, "perplexity of some certain tokens")


@exercise(
    "ex1",
    points=1,
    invariant="sums are taken in float64: 80,000 losses in 16 bits neither overflow nor stop "
    "growing",
    cause="a sum or mean in the dtype of the losses, or torch.cat of all of them in float32",
)
def test_long_texts(student, rng):
    for dtype in DTYPES:
        text = (1 + torch.rand(80_000, generator=rng, dtype=torch.float64)).to(dtype)
        texts = [text, torch.full((11,), 3.0, dtype=dtype)]
        bits = total(texts)
        close(student.perplexity(texts, 2), 2 ** (bits / 80_011), f"perplexity, {dtype}", 1e-11)
        close(student.bits_per_byte(texts, 200_000, 2), bits / 200_000, f"bits, {dtype}", 1e-11)
    tokens = torch.tensor([1.0, math.inf, 2.0])
    close(student.perplexity([tokens], 2), math.inf, "perplexity with an impossible token")
    close(student.bits_per_byte([tokens], 9), math.inf, "bits with an impossible token")
    texts = [torch.ones(2), tokens, torch.zeros(0), tokens, torch.ones(3)]  # inf - inf is nan
    close(student.perplexity(texts, 2), math.inf, "perplexity with two impossible tokens")
    close(student.bits_per_byte(texts, 9), math.inf, "bits with two impossible tokens")


@exercise(
    "ex1",
    points=1.5,
    invariant="losses in another base are the same bits; bits do not depend on the cut into tokens",
    cause="log2 of the wrong number, division by tokens, bytes of each text",
)
def test_bits_of_any_texts(student, rng):
    for base in (2, 1000, *(spread(rng, 1.2, 900) for _ in range(12))):
        texts, size = random_texts(rng, base), draw(rng, 1, 300)
        right = total(texts) * math.log2(base) / size
        close(student.bits_per_byte(texts, size, base), right, f"bits in base {base:g}", 1e-11)
    texts = random_texts(rng, math.e)
    for shown in (texts, [t / 2 for t in texts]):
        right = total(shown) / math.log(2)
        close(student.bits_per_byte(shown, 1), right, "bits without a base, one byte", 1e-11)
    others = ((9, 2), (9, 3), (9, 1 + 2.0**-10), (10_000_000_257, 2))
    calls = [(texts, *other) for other in others for texts in alike_texts()]
    rights = [total(texts) * math.log2(base) / size for texts, size, base in calls]
    kept(student, "bits_per_byte", calls, rights, "bits of texts alike", 1e-11)
    close(student.bits_per_byte([], 7, 2), 0, "bits of no text")
    close(student.bits_per_byte([torch.zeros(0)], 7, 2), 0, "bits of a text without tokens")


def passes_of(tokens, window, stride):
    """What strided_windows must return, from the end of each pass."""
    ends = [min(window, tokens)]
    while ends[-1] < tokens:
        ends.append(min(ends[-1] + stride, tokens))
    firsts = [1, *ends[:-1]]
    made = zip(ends, firsts, strict=True)
    return [(max(0, e - window), e, f) for e, f in made] if tokens > 1 else []


@exercise(
    "ex1",
    points=3.5,
    invariant="every token but the first once, in order; a pass is as long as the window where the "
    "text is; each but the first and last scores `stride` tokens",
    cause="the last pass shorter than it could be, a text that ends with a pass, a text of one "
    "pass, "
    "a window of 2",
)
def test_windows_of_any_text(student, rng):
    cases = [(5000, 2048, 1000), (2048, 2048, 7), (2049, 2048, 2047), (0, 2, 1), (1, 9, 3)]
    cases += [(2, 2, 1), (9, 2, 1), (3, 300, 5), (3000, 3, 1)]
    for _ in range(60):
        window = draw(rng, 2, 30)
        cases.append((draw(rng, 0, 120), window, draw(rng, 1, window - 1)))
    for tokens, window, stride in cases:
        found = student.strided_windows(tokens, window, stride)
        assert isinstance(found, list), f"strided_windows returned {type(found).__name__}"
        seen = [tuple(w) if isinstance(w, list) else w for w in found]
        scored = [t for w in seen for t in range(w[2], w[1])]
        assert scored == list(range(1, tokens)), "tokens are left out, or scored twice"
        assert seen == passes_of(tokens, window, stride), "passes that are not as they should be"
    calls = [(20, 8, 3), (20, 8, 4), (20, 9, 3), (23, 8, 3)]
    kept(student, "strided_windows", calls, [passes_of(*c) for c in calls], "passes that are alike")


@exercise(
    "ex1",
    points=1,
    invariant="bases of at most 1, texts without bytes or tokens, and strides that do not fit "
    "raise "
    "ValueError; what is next to them does not",
    cause="a check that only one function makes, < in place of <=",
)
def test_what_perplexity_refuses(student, rng):
    texts = [torch.rand(5, generator=rng), torch.rand(2, generator=rng)]
    close(student.bits_per_byte(texts, 1, 1.5), total(texts) * math.log2(1.5), "bits", 1e-11)
    close(student.perplexity(texts, 1.5), 1.5 ** (total(texts) / 7), "perplexity, base 1.5", 1e-11)
    assert student.strided_windows(3, 2, 1) == [(0, 2, 1), (1, 3, 2)], "the smallest window"
    found = after_error(student, "perplexity", (texts, 1.0), (texts, 1.5))
    close(found, 1.5 ** (total(texts) / 7), "perplexity after a base of 1", 1e-11)
    found = after_error(student, "bits_per_byte", (texts, 0, 2), (texts, 3, 2))
    close(found, total(texts) / 3, "bits after 0 bytes", 1e-11)
    found = after_error(student, "strided_windows", (9, 4, 4), (3, 2, 1))
    assert [tuple(w) for w in found] == [(0, 2, 1), (1, 3, 2)], "passes after a stride too long"
    refused(
        (lambda: student.perplexity(texts, 1.0), "base 1.0"),
        (lambda: student.perplexity(texts, 0), "base 0"),
        (lambda: student.perplexity(texts, -2.0), "base -2"),
        (lambda: student.perplexity([torch.zeros(0), torch.zeros(0)]), "texts without tokens"),
        (lambda: student.bits_per_byte(texts, -1), "-1 bytes"),
        (lambda: student.bits_per_byte(texts, 0, 2), "0 bytes"),
        (lambda: student.bits_per_byte([], 0, 2), "0 bytes, no texts"),
        (lambda: student.bits_per_byte(texts, 5, 0.9), "base 0.9"),
        (lambda: student.bits_per_byte([], 5, 1), "base 1, no texts"),
        (lambda: student.bits_per_byte(texts, 5, -2.0), "base -2"),
        (lambda: student.bits_per_byte(texts, -1, 0.5), "-1 bytes and base 0.5"),
        (lambda: student.bits_per_byte(texts, -4, -2.0), "-4 bytes and base -2"),
        (lambda: student.strided_windows(-1, 4, 2), "-1 tokens"),
        (lambda: student.strided_windows(-9, 4, 2), "-9 tokens"),
        (lambda: student.strided_windows(9, -4, -1), "a window of -4, a stride of -1"),
        (lambda: student.strided_windows(9, -4, -5), "a window of -4, a stride of -5"),
        (lambda: student.strided_windows(9, 0, 0), "a window of 0, a stride of 0"),
        (lambda: student.strided_windows(9, 4, 4), "a stride of the window"),
        (lambda: student.strided_windows(9, 4, 5), "a stride above the window"),
        (lambda: student.strided_windows(9, 4, -1), "a stride of -1"),
        (lambda: student.strided_windows(9, 1, 1), "a window of 1"),
        (lambda: student.strided_windows(1, 4, 4), "a stride of the window, one token"),
        (lambda: student.strided_windows(0, 4, 0), "a stride of 0, no tokens"),
    )


# ---- exercise 2 ------------------------------------------------------------------------------


def random_config(rng):
    """(config, shapes of the matrices of a layer, width of all query heads, of all key heads)."""
    heads, size = 2 ** draw(rng, 0, 4), draw(rng, 1, 20)
    d, inside = heads * size, draw(rng, 1, 300)
    config = {"vocab_size": draw(rng, 1, 900), "hidden_size": d, "intermediate_size": inside}
    config |= {"num_hidden_layers": draw(rng, 1, 9), "num_attention_heads": heads}
    kv_heads = heads
    if draw(rng, 0, 1):
        kv_heads = config["num_key_value_heads"] = 2 ** draw(rng, 0, heads.bit_length() - 1)
    else:
        config |= [{}, {"num_key_value_heads": None}][draw(rng, 0, 1)]
    if draw(rng, 0, 1):
        size = config["head_dim"] = draw(rng, 1, 40)
    else:
        config |= [{}, {"head_dim": None}][draw(rng, 0, 1)]
    gated = {"gated_mlp": (True, False, None, False)[draw(rng, 0, 3)]} if draw(rng, 0, 2) else {}
    tied = {"tie_word_embeddings": (True, False, None)[draw(rng, 0, 2)]} if draw(rng, 0, 2) else {}
    config |= gated | tied
    shapes = [(d, heads * size), (d, kv_heads * size), (d, kv_heads * size), (heads * size, d)]
    shapes += [(d, inside), (inside, d)]
    shapes += [(d, inside)] if gated.get("gated_mlp") is not False else []
    return config, shapes, heads * size, kv_heads * size


def configs(rng, number):
    """Random configs: each field is there, missing and None, and every kind of MLP, among them."""
    made = [random_config(rng) for _ in range(number)]
    for i, changes in enumerate((
        {"gated_mlp": None, "tie_word_embeddings": None},
        {"gated_mlp": True, "tie_word_embeddings": True},
        {"gated_mlp": True, "tie_word_embeddings": False},
    )):  # fmt: skip
        config, shapes, wide, narrow = made[i]
        gate = [(config["hidden_size"], config["intermediate_size"])]
        made[i] = (config | changes, shapes[:6] + gate, wide, narrow)
    config, shapes, wide, narrow = made[3]
    made[3] = (config | {"gated_mlp": False}, shapes[:6], wide, narrow)
    one = {"vocab_size": 1, "hidden_size": 1, "intermediate_size": 1, "num_hidden_layers": 1}
    one |= {"num_attention_heads": 1, "num_key_value_heads": None, "head_dim": None}
    return [*made, (one, [(1, 1)] * 7, 1, 1)]


def measured(config):
    """What random_config returns, of a config whose key heads are given."""
    d, inside = config["hidden_size"], config["intermediate_size"]
    size = config.get("head_dim") or d // config["num_attention_heads"]
    wide, narrow = (size * config[f"num_{kind}_heads"] for kind in ("attention", "key_value"))
    shapes = [(d, wide), (d, narrow), (d, narrow), (wide, d), (d, inside), (inside, d)]
    shapes += [(d, inside)] if config.get("gated_mlp") is not False else []
    return config, shapes, wide, narrow


FIELDS = {"vocab_size": 70, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3}
FIELDS |= {"num_attention_heads": 4, "num_key_value_heads": 2}
CHANGES = [{"vocab_size": 71}, {"hidden_size": 28}, {"intermediate_size": 41}]
CHANGES += [{"num_hidden_layers": 2}, {"num_attention_heads": 2}, {"num_key_value_heads": 4}]
CHANGES += [{"head_dim": 5}, {"gated_mlp": False}, {"tie_word_embeddings": True}]
ODD = {"vocab_size": 50_257, "hidden_size": 1601, "intermediate_size": 6401, "head_dim": 64}
ODD |= {"num_hidden_layers": 47, "num_attention_heads": 25, "num_key_value_heads": 25}


def alike_configs():
    """Models of which one field differs; and a larger one, all odd."""
    return [measured(FIELDS | change) for change in ({}, *CHANGES)] + [measured(ODD)]


def matrix_weights(shapes):
    return sum(rows * columns for rows, columns in shapes)


def seen(new, cached):
    """Pairs, token by token."""
    return sum(cached + place for place in range(1, new + 1))


def flops_of(config, shapes, wide, new, cached, batch):
    """FLOPs: 2 for each product."""
    layers = config["num_hidden_layers"]
    products = new * layers * matrix_weights(shapes) + 2 * layers * wide * seen(new, cached)
    return 2 * batch * (products + config["vocab_size"] * config["hidden_size"])


def bytes_of(config, shapes, narrow, new, cached, batch, bits, kv_bits):
    layers = config["num_hidden_layers"]
    weights = layers * matrix_weights(shapes) + config["vocab_size"] * config["hidden_size"]
    values = 2 * layers * narrow * batch * (cached + new)
    return (weights * Fraction(bits) + values * Fraction(kv_bits)) / 8


@exercise(
    "ex2",
    points=2,
    invariant="a layer has q, k, v, o and two or three matrices, whatever fields are missing or "
    "None",
    cause="a field that is there with the value None, a head's size from the wrong number of heads",
)
def test_layers_of_any_config(student, rng):
    for config, shapes, _, _ in configs(rng, 40):
        close(student.layer_weights(config), matrix_weights(shapes), "weights of a layer")
    models = alike_configs()
    rights = [matrix_weights(shapes) for _, shapes, _, _ in models]
    kept(student, "layer_weights", [m[:1] for m in models], rights, "weights of models alike")
    odd = {"vocab_size": 5, "hidden_size": 10, "intermediate_size": 7, "num_hidden_layers": 1}
    odd |= {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4}
    close(student.layer_weights(odd), 10 * (48 + 24 + 21), "6 heads of 4, hidden size 10")
    right = 2 * 16384**2 + 2 * 16384 * 1024 + 3 * 16384 * 53248
    close(student.layer_weights(LARGE), right, "weights of a layer of 405B")


@exercise(
    "ex2",
    points=2.5,
    invariant="pairs counted token by token; FLOPs of layers, attention and lm_head of the last "
    "token",
    cause="pairs that miss a token, one of attention's two products, key heads in attention's "
    "FLOPs, "
    "hidden size in place of heads x d",
)
def test_flops_of_any_step(student, rng):
    some = ((1, 0), (1, 200_000), (7, 0), (3, 4), (4, 3), (draw(rng, 1, 30), draw(rng, 0, 50)))
    for new, cached in some:
        close(student.pairs(new, cached), seen(new, cached), "pairs")
    right = 100_001 * 90_001 + 100_001 * 50_001
    close(student.pairs(100_001, 90_001), right, "pairs of a long prompt behind a long one")
    close(student.pairs(100_000, 3), 100_000 * 3 + 50_000 * 100_001, "pairs of a long prompt")
    for config, shapes, wide, _ in configs(rng, 40):
        new, cached, batch = draw(rng, 1, 12), draw(rng, 0, 40), draw(rng, 1, 70)
        right = flops_of(config, shapes, wide, new, cached, batch)
        close(student.step_flops(config, new, cached, batch), right, "FLOPs of a step")
        right = flops_of(config, shapes, wide, new, 0, 1)
        close(student.step_flops(config, new), right, "FLOPs of a step, nothing cached")
    models, args = alike_configs(), (3, 998, 63)
    rights = [flops_of(*m[:3], *args) for m in models]
    kept(student, "step_flops", [(m[0], *args) for m in models], rights, "FLOPs of models alike")


@exercise(
    "ex2",
    points=2.5,
    invariant="weights once, keys and values of each sequence; bits may be no integers",
    cause="weights read for each sequence, bits of weights for keys too, hidden size in place of "
    "key "
    "heads x d, tied tables that are not read",
)
def test_bytes_of_any_step(student, rng):
    for config, shapes, _, narrow in configs(rng, 40):
        new, cached, batch = draw(rng, 1, 12), draw(rng, 0, 40), draw(rng, 1, 70)
        bits, kv_bits = draw(rng, 1, 128) / 4, draw(rng, 1, 128) / 4
        right = bytes_of(config, shapes, narrow, new, cached, batch, bits, kv_bits)
        close(
            student.step_bytes(config, new, cached, batch, bits, kv_bits), right, "bytes of a step"
        )
        right = bytes_of(config, shapes, narrow, new, cached, batch, 16, 16)
        close(student.step_bytes(config, new, cached, batch), right, "bytes of a step in 16 bits")
    models, args = alike_configs(), (3, 998, 63, 4, 16)
    rights = [bytes_of(m[0], m[1], m[3], *args) for m in models]
    kept(student, "step_bytes", [(m[0], *args) for m in models], rights, "bytes of models alike")
    usual = ((1, 64), (64, 1), (16, 8.25), (4.15625, 16), (16, 4.15625))
    for bits, kv_bits in (*usual, (1.58, 16), (16, 3.3)):
        config, shapes, _, narrow = random_config(rng)
        right = bytes_of(config, shapes, narrow, 2, 5, 64, bits, kv_bits)
        close(student.step_bytes(config, 2, 5, 64, bits, kv_bits), right, "bytes of a step")


@exercise(
    "ex2",
    points=1,
    invariant="405 billion parameters behind 100,000 tokens: the same counts",
    cause="numbers of 32 bits, or pairs in a list",
)
def test_steps_of_a_large_model(student, rng):
    d, inside = LARGE["hidden_size"], LARGE["intermediate_size"]
    shapes = [(d, d), (d, 1024), (d, 1024), (d, d), (d, inside), (inside, d), (d, inside)]
    for new, cached, batch in ((1, 100_000, 4096), (100_000, 0, 1), (2000, 100_000, 1)):
        right = flops_of(LARGE, shapes, d, new, cached, batch)
        close(student.step_flops(LARGE, new, cached, batch), right, "FLOPs of a step of 405B")
        right = bytes_of(LARGE, shapes, 1024, new, cached, batch, 4, 8)
        close(student.step_bytes(LARGE, new, cached, batch, 4, 8), right, "bytes of a step of 405B")
    steps = [(1_000_000, 0, 64), (100_000, 100_000, 4096), (1, 10_000_000, 100_000)]
    found = student.drive(drive_floats, "step_flops", [(LARGE, *step) for step in steps])
    for value, step in zip(found, steps, strict=True):
        close(value, flops_of(LARGE, shapes, d, *step), f"FLOPs of 405B, {step}")
    found = student.drive(drive_floats, "step_bytes", [(LARGE, *step, 16, 16) for step in steps])
    for value, step in zip(found, steps, strict=True):
        close(value, bytes_of(LARGE, shapes, 1024, *step, 16, 16), f"bytes of 405B, {step}")
    found = student.drive(drive_floats, "pairs", [(100_000, 2**50), (3, 2**62)])
    for value, (new, cached) in zip(found, ((100_000, 2**50), (3, 2**62)), strict=True):
        close(value, new * cached + new * (new + 1) // 2, "pairs of very many tokens")


@exercise(
    "ex2",
    points=1,
    invariant="no new token, no sequence, negative caches and bits of 0 raise ValueError; 1 does "
    "not",
    cause="a check that only one of the functions makes, or <= in place of <",
)
def test_what_a_step_refuses(student, rng):
    config, shapes, wide, narrow = random_config(rng)
    close(student.step_flops(config, 1, 0, 1), flops_of(config, shapes, wide, 1, 0, 1), "FLOPs")
    right = bytes_of(config, shapes, narrow, 1, 0, 1, 1, 1)
    close(student.step_bytes(config, 1, 0, 1, 1, 1), right, "bytes")
    found = after_error(student, "step_flops", (config, 4, 0, 0), (config, 1, 0, 1))
    close(found, flops_of(config, shapes, wide, 1, 0, 1), "FLOPs after no sequence")
    found = after_error(student, "step_bytes", (config, 4, 3, 2, 0), (config, 1, 0, 1, 1, 1))
    close(found, right, "bytes after weights of 0 bits")
    close(after_error(student, "pairs", (0, 2), (2, 3)), 9, "pairs after no token")
    half = bytes_of(config, shapes, narrow, 1, 0, 1, 0.5, 0.25)
    close(student.step_bytes(config, 1, 0, 1, 0.5, 0.25), half, "bytes of half bits")
    refused(
        (lambda: student.pairs(-2, 5), "-2 new tokens"),
        (lambda: student.pairs(0), "no new token"),
        (lambda: student.pairs(3, -1), "-1 cached tokens"),
        (lambda: student.pairs(-2, -3), "-2 new tokens, -3 cached ones"),
        (lambda: student.step_flops(config, 4, -1), "-1 cached tokens, 4 new ones"),
        (lambda: student.step_flops(config, 4, 0, 0), "no sequence, 4 new tokens"),
        (lambda: student.step_flops(config, -2, 0, -3), "-2 new tokens, -3 sequences"),
        (lambda: student.step_flops(config, 0, 5, 2), "no new token"),
        (lambda: student.step_flops(config, 1, -1), "-1 cached tokens"),
        (lambda: student.step_flops(config, 1, 0, 0), "no sequence"),
        (lambda: student.step_flops(config, 1, 0, -3), "-3 sequences"),
        (lambda: student.step_bytes(config, -2, 0, -3), "-2 new tokens, -3 sequences"),
        (lambda: student.step_bytes(config, 4, 0, 0), "no sequence, 4 new tokens"),
        (lambda: student.step_bytes(config, 1, -2, -3), "-2 cached tokens, -3 sequences"),
        (lambda: student.step_bytes(config, 1, 0, 1, -4, -8), "weights of -4 bits, values of -8"),
        (lambda: student.step_bytes(config, 0, 5, 2), "no new token"),
        (lambda: student.step_bytes(config, 1, -1), "-1 cached tokens"),
        (lambda: student.step_bytes(config, 4, -1), "-1 cached tokens, 4 new ones"),
        (lambda: student.step_bytes(config, 1, 0, 0), "no sequence"),
        (lambda: student.step_bytes(config, 1, 0, -1), "-1 sequences"),
        (lambda: student.step_bytes(config, 1, 0, 1, 0, 8), "weights of 0 bits"),
        (lambda: student.step_bytes(config, 1, 0, 1, -4), "weights of -4 bits"),
        (lambda: student.step_bytes(config, 1, 0, 1, 8, 0), "values of 0 bits"),
        (lambda: student.step_bytes(config, 1, 0, 1, 8, -1), "values of -1 bits"),
    )


# ---- exercise 3 ------------------------------------------------------------------------------


def machine_of(rng):
    """(FLOP/s, bytes/s)"""
    return spread(rng, 1e-3, 1e16), spread(rng, 1e-3, 1e14)


def step_of(rng, peak, bandwidth):
    """(FLOPs, bytes), on either side of the ridge and not within 1 % of it."""
    moved = spread(rng, 1e-3, 1e12)
    factor = spread(rng, 1.01, 1e4) ** (1 if draw(rng, 0, 1) else -1)
    return moved * peak / bandwidth * factor, moved


@exercise(
    "ex3",
    points=3,
    invariant="time is the larger of the two, speed the smaller; speed = FLOPs / time",
    cause="a limit of one machine built in, the ridge upside down",
)
def test_any_machine_and_step(student, rng):
    for _ in range(25):
        peak, bandwidth = machine_of(rng)
        flops, moved = step_of(rng, peak, bandwidth)
        at = flops / moved
        time = max(flops / peak, moved / bandwidth)
        close(student.ridge(peak, bandwidth), peak / bandwidth, "ridge")
        close(student.intensity(flops, moved), at, "intensity")
        close(student.attainable(at, peak, bandwidth), min(peak, at * bandwidth), "attainable")
        close(student.seconds(flops, moved, peak, bandwidth), time, "seconds")
        right = "memory" if moved / bandwidth > flops / peak else "compute"
        found = student.limit(flops, moved, peak, bandwidth)
        assert found == right, "the other one is the limit"
    for peak, bandwidth in ((8, 2), (8, 0.25), (64, 2), (64, 0.25)):  # machines and steps alike
        close(student.ridge(peak, bandwidth), peak / bandwidth, "ridge")
        close(student.attainable(5, peak, bandwidth), min(peak, 5 * bandwidth), "attainable at 5")
        for flops, moved in ((80, 4), (80, 40), (8, 4), (8, 40)):
            time = max(flops / peak, moved / bandwidth)
            close(student.seconds(flops, moved, peak, bandwidth), time, "seconds")
            right = "memory" if moved / bandwidth > flops / peak else "compute"
            found = student.limit(flops, moved, peak, bandwidth)
            assert found == right, "the other one is the limit"
    close(student.ridge(2e15, 8e12), 250, "ridge of a large machine")
    for at in (3, 249.5, 1e7):
        close(student.attainable(at, 2e15, 8e12), min(2e15, at * 8e12), "attainable there")
    for flops, moved, name in ((3e24, 1.5e20, "compute"), (1.5e20, 3e22, "memory")):
        time = max(flops / 2e15, moved / 8e12)
        close(student.seconds(flops, moved, 2e15, 8e12), time, "seconds of much work")
        assert student.limit(flops, moved, 2e15, 8e12) == name, "the other one is the limit"
        close(student.intensity(flops, moved), flops / moved, "intensity of much work")
    for few in (1e-3, 1e-9):
        close(student.intensity(5, few), 5 / few, "intensity of few bytes")
    close(student.attainable(1e12, 1e16, 1e-3), 1e9, "attainable far below a high ridge")


@exercise(
    "ex3",
    points=2.5,
    invariant="no bytes, no FLOPs and neither are work too; at the ridge it is computing",
    cause="0 / 0, inf times a bandwidth, > in place of >=",
)
def test_nothing_to_do_and_the_ridge(student, rng):
    peak, bandwidth = machine_of(rng)
    work = spread(rng, 1e-3, 1e9)
    close(student.intensity(work, 0), math.inf, "intensity without bytes")
    close(student.intensity(work, 0.0), math.inf, "intensity without bytes")
    close(student.intensity(0, work), 0, "intensity without FLOPs")
    close(student.intensity(0, 0), 0, "intensity of nothing")
    for at, right in ((0, 0), (math.inf, peak)):
        close(student.attainable(at, peak, bandwidth), right, f"attainable at {at}")
    close(student.seconds(0, 0, peak, bandwidth), 0, "seconds of nothing")
    close(student.seconds(work, 0, peak, bandwidth), work / peak, "seconds without bytes")
    close(student.seconds(0, work, peak, bandwidth), work / bandwidth, "seconds without FLOPs")
    assert student.limit(work, 0, peak, bandwidth) == "compute", "work without bytes"
    assert student.limit(0, work, peak, bandwidth) == "memory", "bytes without work"
    assert student.limit(0, 0, peak, bandwidth) == "compute", "no work and no bytes"
    for power in (0, 3, 20):  # exact in binary
        two, moved = 2.0**power, 2.0 ** draw(rng, 0, 30)
        assert student.limit(two * moved, moved, two * 4, 4.0) == "compute", "at the ridge"
        close(student.attainable(two, two * 4, 4.0), two * 4, "attainable at the ridge")
        close(student.seconds(two * moved, moved, two * 4, 4.0), moved / 4, "seconds at the ridge")
        for tiny in (2.0**-20, 2.0**-40):
            more = moved * (1 + tiny)  # exact too
            below = student.limit(two * moved, more, two * 4, 4.0)
            assert below == "memory", "just below the ridge"
            above = student.limit(two * more, moved, two * 4, 4.0)
            assert above == "compute", "just above the ridge"


@exercise(
    "ex3",
    points=2.5,
    invariant="parts in turn take the sum of their times: no less than their sums, at most twice "
    "that",
    cause="sums first, the longest part only, or the limit of the first part for all",
)
def test_any_parts_in_turn(student, rng):
    for number in (1, 2, 3, 30, 300, *(draw(rng, 1, 9) for _ in range(12))):
        peak, bandwidth = machine_of(rng)
        parts = [step_of(rng, peak, bandwidth) for _ in range(number)]
        parts += [(0, 0), (0, 5.0), (7, 0)][: draw(rng, 0, 3)]
        right = math.fsum(max(f / peak, m / bandwidth) for f, m in parts)
        found = student.in_turn(parts, peak, bandwidth)
        close(found, right, "seconds of parts in turn")
        whole = max(sum(f for f, _ in parts) / peak, sum(m for _, m in parts) / bandwidth)
        assert whole * (1 - 1e-9) <= found <= 2 * whole * (1 + 1e-9), "out of its bounds"
    many = [(80, 4), (8, 40)] * 2500
    close(student.in_turn(many, 8, 2), 75_000, "seconds of 5000 parts", 1e-11)
    close(student.in_turn([(1e24, 1e20), (0, 0)], 1e15, 1e12), 1e9, "much work in turn")
    close(student.in_turn([], *machine_of(rng)), 0, "no parts")
    alike = [(80, 4), (8, 40), (80, 4), (80, 6), (8, 40)]  # 8 FLOP/s, 2 bytes/s: 10, 20, 10, ... s
    close(student.in_turn(alike, 8, 2), 70, "parts that are alike")
    lists = [[(80, 4), (8, 40)], [(80, 4), (8, 4)], [(8, 4), (80, 40)], [(80, 4)] * 2, [(80, 4)]]
    calls = [(parts, *m) for parts in lists for m in ((8, 2), (8, 0.25), (64, 2))]
    rights = [sum(max(f / peak, m / rate) for f, m in parts) for parts, peak, rate in calls]
    kept(student, "in_turn", calls, rights, "seconds of lists alike")


@exercise(
    "ex3",
    points=1,
    invariant="negative work and machines that do nothing raise ValueError in every function",
    cause="a check that only one of the functions makes, or that comes after a division by 0",
)
def test_what_a_roofline_refuses(student, rng):
    peak, bandwidth = machine_of(rng)
    close(student.seconds(0, 1, peak, bandwidth), 1 / bandwidth, "one byte")
    for bad in ([(80, 4), (8, -1)], [(80, 4), (-1, 40)]):
        found = after_error(student, "in_turn", (bad, 8, 2), ([(8, 40), (80, 4)], 8, 2))
        close(found, 30, "seconds of two parts after some that are refused")
    found = after_error(student, "seconds", (80, -1, 8, 2), (80, 4, 8, 2))
    close(found, 10, "seconds after -1 bytes")
    refused(
        (lambda: student.intensity(-1, -1), "-1 FLOPs, -1 bytes"),
        (lambda: student.seconds(-1, -1, peak, bandwidth), "-1 FLOPs, -1 bytes"),
        (lambda: student.seconds(-1, -1, -1.0, -1.0), "all of them -1"),
        (lambda: student.limit(-1, -1, peak, bandwidth), "-1 FLOPs, -1 bytes"),
        (lambda: student.limit(-1, -1, -1.0, -1.0), "all of them -1"),
        (lambda: student.in_turn([(-1, -1)], peak, bandwidth), "-1 FLOPs, -1 bytes"),
        (lambda: student.in_turn([(-1, -1)], -1.0, -1.0), "all of them -1"),
        (lambda: student.attainable(-1, -peak, bandwidth), "an intensity of -1, a peak below 0"),
        (lambda: student.attainable(-1, peak, -bandwidth), "-1, a bandwidth below 0"),
        (lambda: student.intensity(-1, 1), "-1 FLOPs"),
        (lambda: student.intensity(1, -1), "-1 bytes"),
        (lambda: student.intensity(-1, 0), "-1 FLOPs, no bytes"),
        (lambda: student.intensity(0, -1), "no FLOPs, -1 bytes"),
        (lambda: student.seconds(-1, 0, peak, bandwidth), "-1 FLOPs, no bytes"),
        (lambda: student.seconds(0, -1, peak, bandwidth), "no FLOPs, -1 bytes"),
        (lambda: student.limit(-1, 0, peak, bandwidth), "-1 FLOPs, no bytes"),
        (lambda: student.limit(0, -1, peak, bandwidth), "no FLOPs, -1 bytes"),
        (lambda: student.in_turn([(1, 1), (-1, 1), (1, 1)], peak, bandwidth), "-1 FLOPs between"),
        (lambda: student.attainable(-1.0, peak, bandwidth), "an intensity of -1"),
        (lambda: student.seconds(-1, 1, peak, bandwidth), "-1 FLOPs"),
        (lambda: student.seconds(1, -1, peak, bandwidth), "-1 bytes"),
        (lambda: student.limit(-1, 1, peak, bandwidth), "-1 FLOPs"),
        (lambda: student.limit(1, -1, peak, bandwidth), "-1 bytes"),
        (lambda: student.in_turn([(-1, 1)], peak, bandwidth), "-1 FLOPs"),
        (lambda: student.in_turn([(1, 1), (1, -1)], peak, bandwidth), "-1 bytes"),
    )
    one = ((0, bandwidth), (peak, 0), (-1.0, bandwidth), (peak, -1.0))
    for bad in (*one, (0, 0), (-peak, -bandwidth), (-1.0, 0), (0, -1.0)):
        refused(
            (lambda m=bad: student.ridge(*m), "no machine"),
            (lambda m=bad: student.attainable(1, *m), "no machine"),
            (lambda m=bad: student.attainable(0, *m), "no machine, no intensity"),
            (lambda m=bad: student.seconds(1, 1, *m), "no machine"),
            (lambda m=bad: student.seconds(0, 0, *m), "no machine, nothing to do"),
            (lambda m=bad: student.attainable(math.inf, *m), "no machine, no bytes"),
            (lambda m=bad: student.limit(1, 1, *m), "no machine"),
            (lambda m=bad: student.limit(0, 0, *m), "no machine, nothing to do"),
            (lambda m=bad: student.limit(1, 0, *m), "no machine, no bytes"),
            (lambda m=bad: student.in_turn([(1, 1)], *m), "no machine"),
            (lambda m=bad: student.in_turn([], *m), "no machine, no parts"),
        )


# ---- exercise 4 ------------------------------------------------------------------------------

TICK = 2.0**-10  # times are whole ticks, so that differences and limits are exact


def random_request(rng, start, tokens, finished):
    """A request whose tokens come a few ticks apart, some of them at once."""
    arrival = start + draw(rng, 0, 3000) * TICK
    times, now = [], arrival + draw(rng, 1, 2000) * TICK
    for _ in range(tokens):
        times.append(now)
        now += draw(rng, 0, 3) * draw(rng, 0, 300) * TICK
    return {"arrival": arrival, "times": times, "finished": finished}


def random_log(rng, start):
    """Requests in any order: with many tokens, one, none; unfinished ones."""
    log = [random_request(rng, start, draw(rng, 2, 12), draw(rng, 0, 3) > 0) for _ in range(8)]
    log += [random_request(rng, start, 1, True), random_request(rng, start, 1, False)]
    log += [random_request(rng, start, 0, False), random_request(rng, start, 2, False)]
    log += [random_request(rng, start + 100, 0, False)]  # comes behind the last token, and waits
    return [log[i] for i in torch.randperm(len(log), generator=rng).tolist()]


def of_request(r):
    """timings, by the definition."""
    times = r["times"]
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    return {
        "ttft": times[0] - r["arrival"] if times else None,
        "tpot": math.fsum(gaps) / len(gaps) if gaps else None,
        "latency": times[-1] - r["arrival"] if times and r["finished"] else None,
    }


def mean(values):
    return math.fsum(values) / len(values) if values else None


def of_log(log, ttft_limit, tpot_limit):
    """summarize, by the definition."""
    all_times = [t for r in log for t in r["times"]]
    gaps = [b - a for r in log for a, b in zip(r["times"], r["times"][1:], strict=False)]
    rows = [of_request(r) for r in log]
    good = 0
    for row in rows:
        fast = row["tpot"] is None or row["tpot"] <= tpot_limit
        good += row["latency"] is not None and row["ttft"] <= ttft_limit and fast
    span = max(all_times) - min(r["arrival"] for r in log) if all_times else math.inf
    return {
        "ttft": mean([row["ttft"] for row in rows if row["ttft"] is not None]),
        "tpot": mean([row["tpot"] for row in rows if row["tpot"] is not None]),
        "itl": mean(gaps),
        "itl_p99": float(numpy.percentile(gaps, 99)) if gaps else None,
        "throughput": len(all_times) / span,
        "goodput": good / span,
    }


def same(found, expected, what):
    """A dictionary of numbers and None."""
    assert isinstance(found, dict), f"{what} is of type {type(found).__name__}, not a dict"
    assert set(found) == set(expected), f"{what} has other names than it should"
    for name, value in expected.items():
        if value is None:
            assert found[name] is None, f"{what}: {name} should be None"
        else:
            close(found[name], value, f"{what}: {name}", SUBTRACTED)


@exercise(
    "ex4",
    points=2,
    invariant="TTFT + (n - 1) TPOT is the latency; a request has what its tokens allow",
    cause="n in place of n - 1, a time that counts from 0, a request without a token, False for "
    "None",
)
def test_any_request(student, rng):
    for start in (0.0, 1.7e9):
        for tokens in (0, 1, 2, 60, *(draw(rng, 2, 20) for _ in range(8))):
            for finished in (True, False) if tokens else (False,):
                asked = random_request(rng, start, tokens, finished)
                same(student.timings(asked), of_request(asked), "timings")
    at_once = {"arrival": 0.5, "times": [2.0, 2.0, 2.0], "finished": True}
    same(student.timings(at_once), {"ttft": 1.5, "tpot": 0.0, "latency": 1.5}, "tokens at once")
    changes = ({}, {"arrival": 1.0}, {"times": [2.0, 3.0, 3.0]}, {"finished": False})
    asked = [at_once | change for change in changes]
    kept(student, "timings", [[r] for r in asked], map(of_request, asked), "timings, alike")
    fast = {"arrival": 1.0, "times": [1.0 + 2.0**-40] * 2, "finished": True}  # exact in floats
    same(student.timings(fast), of_request(fast), "a first token at once")


@exercise(
    "ex4",
    points=3,
    invariant="each mean over what it names, rates over the time from the first arrival to the "
    "last "
    "token, in whatever order the requests stand",
    cause="means of the wrong things, the first request of the list for the first arrival, only "
    "finished requests, the time of the last request",
)
def test_any_log(student, rng):
    for start in (0.0, 0.0, 0.0, 1.7e9, 1.7e9):
        log = random_log(rng, start)
        for limits in ((1.0, 0.2), (0.5, 0.05), (math.inf, 0.1), (1.0, math.inf), (0.0, 1.0)):
            same(student.summarize(log, *limits), of_log(log, *limits), "summarize")
    at_once = {"arrival": 0.0, "times": [2.0, 2.0, 2.0], "finished": True}
    slow = {"arrival": 1.0, "times": [2.0, 2.5], "finished": True}
    for log in ([at_once], [at_once, at_once], [slow, at_once, slow]):
        same(student.summarize(log, 2.0, 0.0), of_log(log, 2.0, 0.0), "tokens at once, and twins")
    changes = ({}, {"arrival": 0.5}, {"times": [2.0, 3.0]}, {"finished": False})
    logs = [([at_once, slow | change], 2.0, 1.0) for change in changes]
    kept(student, "summarize", logs, [of_log(*args) for args in logs], "summarize of logs alike")
    log = random_log(rng, 3.0) + random_log(rng, 5.0)
    same(student.summarize(log, 1.0, 0.25), of_log(log, 1.0, 0.25), "summarize of 26 requests")
    log = [r | {"finished": False} for r in random_log(rng, 3.0)]
    same(student.summarize(log, 9.0, 9.0), of_log(log, 9.0, 9.0), "summarize, nothing finished")


@exercise(
    "ex4",
    points=1.5,
    invariant="a limit that is met exactly is met; one token meets any limit of TPOT, also 0",
    cause="< in place of <=, a request without TPOT that is never good, unfinished ones that are",
)
def test_limits_that_are_met(student, rng):
    for _ in range(6):
        one = random_request(rng, 2.0, 1, True)
        row = of_request(one)
        close(student.summarize([one], row["ttft"], 0.0)["goodput"], 1 / row["ttft"], "goodput")
        below = student.summarize([one], row["ttft"] - TICK / 2, 0.0)
        close(below["goodput"], 0, "goodput below the limit")
        many = random_request(rng, 2.0, 9, True)  # 8 gaps: the mean is exact
        row = of_request(many)
        rate = 1 / (many["times"][-1] - many["arrival"])
        for limits, right in (
            ((row["ttft"], row["tpot"]), rate),
            ((row["ttft"], row["tpot"] - TICK / 16), 0),
            ((row["ttft"] - TICK / 16, row["tpot"]), 0),
            ((row["ttft"], row["tpot"] + TICK / 16), rate),
            ((row["ttft"] + 99.0, row["tpot"] - TICK / 16), 0),
            ((row["ttft"] - TICK / 16, row["tpot"] + 99.0), 0),
        ):
            close(student.summarize([many], *limits)["goodput"], right, "goodput at a limit")
        stopped = many | {"finished": False}
        close(student.summarize([stopped], 1e9, 1e9)["goodput"], 0, "goodput, unfinished")
    days = {"arrival": 0.0, "times": [20_000.0, 50_000.0], "finished": True}
    for limits, right in (((2e4, 3e4), 1 / 50_000), ((19_999.0, 3e4), 0), ((2e4, 29_999.0), 0)):
        found = student.summarize([days], *limits)
        same(found, of_log([days], *limits), "a slow server")
        close(found["goodput"], right, "goodput of a slow server")
    even = {"arrival": 0.0, "times": [1.0, 2.0], "finished": True}
    for limits in ((1 - 2.0**-40, 1.0), (1.0, 1 - 2.0**-40)):
        close(student.summarize([even], *limits)["goodput"], 0, "goodput hardly below a limit")
    waits = {"arrival": 1.0, "times": [], "finished": False}
    log = [{"arrival": 4.0, "times": [6.0], "finished": True}, waits]
    same(student.summarize(log, 2.0, 0.0), of_log(log, 2.0, 0.0), "an early request that waits")


@exercise(
    "ex4",
    points=1.5,
    invariant="percentiles as numpy makes them, for any values in any order",
    cause="values that are not sorted, or sorted in place; the last value passed over",
)
def test_any_percentile(student, rng):
    for number in (1, 2, 3, 100, 101, 1000, *(draw(rng, 1, 40) for _ in range(12))):
        values = (torch.randn(number, generator=rng, dtype=torch.float64) * 9 + 1).tolist()
        values += values[: draw(rng, 0, 2)]
        for q in (0, 0.5, 1, 50, 99, 99.9, 100, 12.5, draw(rng, 1, 99) + 0.25):
            right, found = float(numpy.percentile(values, q)), student.percentile(values, q)
            expect_close(float(expect_number(found, "percentile")), right, what="percentile",
                         atol=1e-9)  # fmt: skip
    rows = [[1.0, 2.0, 6.0], [1.0, 3.0, 6.0], [1.0, 3.5, 5.5], [1.0, 3.0, 3.0, 6.0]]
    rights = [float(numpy.percentile(row, 25)) for row in rows]
    kept(student, "percentile", [(row, 25) for row in rows], rights, "percentile, alike", 1e-9)
    short = [1e-9 * draw(rng, 1, 10**6) for _ in range(20)]  # seconds may be small
    expect_close(float(student.percentile(short, 99)), float(numpy.percentile(short, 99)),
                 what="percentile of small values", rtol=1e-9)  # fmt: skip
    long = [1e3 * draw(rng, 1, 10**6) for _ in range(20)]  # a unit is not said
    expect_close(float(student.percentile(long, 99)), float(numpy.percentile(long, 99)),
                 what="percentile of large values", rtol=1e-9)  # fmt: skip
    whole = [draw(rng, -9, 9) for _ in range(7)]
    right = float(numpy.percentile(whole, 75))
    expect_close(float(student.percentile(whole, 75)), right, what="percentile", atol=1e-9)


@exercise(
    "ex4",
    points=1,
    invariant="clocks that run backwards and percentiles of nothing raise ValueError, in any place",
    cause="only the first or last pair is looked at, or only `timings` looks",
)
def test_what_a_log_refuses(student, rng):
    good = random_request(rng, 2.0, 5, True)
    same(student.timings(good), of_request(good), "timings")
    a, times = good["arrival"], good["times"]
    bad = [times[:i] + [times[i - 1] - TICK] + times[i + 1 :] for i in (1, 2, 3, 4)]
    bad += [[a], [a - TICK], [a, *times[1:]], [a - TICK, *times[1:]], [times[0] + 99, *times]]
    for row in bad:
        for finished in (True, False):
            wrong = {"arrival": a, "times": row, "finished": finished}
            refused(
                (lambda w=wrong: student.timings(w), "times that run backwards"),
                (lambda w=wrong: student.summarize([good, w], 1.0, 1.0), "a log with such times"),
                (lambda w=wrong: student.summarize([w, good], 1.0, 1.0), "a log with such times"),
                (lambda w=wrong: student.summarize([good, w, good], 1.0, 1.0), "such a log"),
            )
    for row in (bad[0], bad[3], [a]):
        wrong = {"arrival": a, "times": row, "finished": True}
        for log in ([good, wrong], [wrong, good], [good, good, wrong]):
            found = after_error(student, "summarize", (log, 9.0, 9.0), ([good], 9.0, 9.0))
            same(found, of_log([good], 9.0, 9.0), "summarize after a log that is refused")
        same(after_error(student, "timings", (wrong,), (good,)), of_request(good), "timings, then")
    found = after_error(student, "percentile", ([3.0, 1.0], 101), ([2.0, 4.0], 50))
    close(found, 3, "a percentile after one that is refused")
    zero = {"arrival": 0.0, "times": [0.0, 1.0], "finished": True}
    two = {"arrival": a, "times": [times[0], times[0] - TICK], "finished": True}
    if times[0] - TICK <= a:
        two["arrival"] = a - 1.0
    hardly = {"arrival": 0.5, "times": [1.0, 2.0, 2.0 - 2.0**-40], "finished": True}
    refused(
        (lambda: student.timings(hardly), "a token hardly before the one before it"),
        (lambda: student.timings(zero), "a token at the arrival, at 0"),
        (lambda: student.timings(two), "two tokens that run backwards"),
    )
    close(student.percentile([2.0], 0), 2, "the smallest percentile")
    refused(
        (lambda: student.percentile([], 0), "no values"),
        (lambda: student.percentile([1.0, 2.0], -1), "percentile -1"),
        (lambda: student.percentile([1.0, 2.0], -0.25), "percentile -0.25"),
        (lambda: student.percentile([1.0, 2.0], 100.25), "percentile 100.25"),
        (lambda: student.percentile([1.0, 2.0], 100.5), "percentile 100.5"),
        (lambda: student.percentile([1.0], 101), "percentile 101 of one value"),
    )


# ---- exercise 5 ------------------------------------------------------------------------------


def linear(config, shapes, wide, narrow, bits, kv_bits):
    """(bytes of the weights, FLOPs of a sequence, FLOPs and bytes of each token that is seen)."""
    layers = config["num_hidden_layers"]
    weights = layers * matrix_weights(shapes) + config["vocab_size"] * config["hidden_size"]
    stored = weights * Fraction(bits) / 8
    return stored, 2 * weights, 4 * layers * wide, 2 * layers * narrow * Fraction(kv_bits) / 8


def batch_of(parts, context, peak, bandwidth):
    """(ridge batch or inf, whether it is far enough from the edge for floats to say so)."""
    stored, fixed, more, each = parts
    ratio = Fraction(peak) / Fraction(bandwidth)
    left = (fixed + more * (context + 1)) / ratio
    right = each * (context + 1)
    clear = abs(left - right) * 1000 >= max(left, right)
    return (float(stored / (left - right)) if left > right else math.inf), clear


@exercise(
    "ex5",
    points=4,
    invariant="B f / peak = (W + B k) / bandwidth, with keys and values of the whole batch; inf "
    "where "
    "that has no solution",
    cause="W / k of the wrong bits, the new token's own bytes, a context that only FLOPs know of",
)
def test_any_ridge_batch(student, rng):
    for config, shapes, wide, narrow in configs(rng, 40):
        bits, kv_bits = draw(rng, 4, 128) / 4, draw(rng, 4, 128) / 4
        parts = linear(config, shapes, wide, narrow, bits, kv_bits)
        stored, fixed, more, each = parts
        for context in (0, draw(rng, 1, 60), draw(rng, 100, 5000)):
            seen_tokens = context + 1
            edge = float((fixed + more * seen_tokens) / (each * seen_tokens))  # a ridge
            for factor in (spread(rng, 0.01, 0.9), spread(rng, 1.1, 30)):
                bandwidth = spread(rng, 1e9, 8e12) * 1e3 ** draw(rng, -3, 2)
                peak = bandwidth * edge * factor
                right, _ = batch_of(parts, context, peak, bandwidth)
                assert (right < math.inf) == (factor < 1), "the test's own numbers"
                found = student.ridge_batch(config, context, peak, bandwidth, bits, kv_bits)
                close(found, right, "the ridge batch", SUBTRACTED)


def alike_ridges(student):
    """Models of which one field differs, and arguments of which one does."""
    models, usual = alike_configs(), [10, 4e11, 1e11, 16, 16]
    calls = [(m, *usual) for m in models]
    for place, value in (
        (0, 11), (1, 3e11), (2, 1.2e11), (3, 8), (3, 1.58), (3, 0.5), (3, 64),
        (4, 8), (4, 20.7), (4, 0.5), (4, 64),
    ):  # fmt: skip
        calls.append((models[0], *[value if i == place else x for i, x in enumerate(usual)]))
    rights = [
        batch_of(linear(*m, *bits), *args)[0] for m, *args, a, b in calls for bits in [(a, b)]
    ]
    calls = [(m[0], *args) for m, *args in calls]
    kept(student, "ridge_batch", calls, rights, "ridge batches of steps alike", SUBTRACTED)


@exercise(
    "ex5",
    points=1,
    invariant="16 bits where nothing is said; 405 billion parameters and 200,000 tokens too",
    cause="a default of 8 or 32 bits, or bits of weights for keys",
)
def test_ridge_batches_of_real_models(student, rng):
    alike_ridges(student)
    d, inside = LARGE["hidden_size"], LARGE["intermediate_size"]
    shapes = [(d, d), (d, 1024), (d, 1024), (d, d), (d, inside), (inside, d), (d, inside)]
    for peak, bandwidth in ((989.4e12, 3.35e12), (2.25e15, 8e12), (1e11, 2e10)):
        for args in ((), (4,), (4, 8), (4.15625, 16)):
            parts = linear(LARGE, shapes, d, 1024, *(list(args) + [16, 16])[:2] if len(args) < 2
                           else args)  # fmt: skip
            for context in (0, 1000, 200_000):
                right, clear = batch_of(parts, context, peak, bandwidth)
                found = student.ridge_batch(LARGE, context, peak, bandwidth, *args)
                if clear:
                    close(found, right, "the ridge batch of 405B", SUBTRACTED)


def alike_contexts(student):
    """Models of which one field differs, and machines and bits of which one does."""
    machines = [(4e11, 1e11, 16), (5e11, 1e11, 16), (5e11, 1.1e11, 16), (4e11, 1e11, 64)]
    machines += [(2e12, 1e11, 3.3), (1e14, 1e11, 0.25)]
    calls, rights = [], []
    for model in alike_configs():
        for peak, bandwidth, kv_bits in machines:
            _, fixed, more, each = linear(*model, 16, kv_bits)
            rights.append(fixed / (each * Fraction(peak) / Fraction(bandwidth) - more) - 1)
            calls.append((model[0], peak, bandwidth, kv_bits))
    kept(student, "ridge_context", calls, rights, "ridge contexts, alike", SUBTRACTED)


@exercise(
    "ex5",
    points=3,
    invariant="below this context some batch is enough, above it none; inf if attention's own "
    "FLOPs "
    "a byte reach the ridge",
    cause="query heads where key heads count, the token itself, a context below 0, bits of a key",
)
def test_any_ridge_context(student, rng):
    for config, shapes, wide, narrow in configs(rng, 60):
        kv_bits = draw(rng, 4, 128) / 4
        _, fixed, more, each = linear(config, shapes, wide, narrow, 16, kv_bits)
        bandwidth = spread(rng, 1e9, 8e12)
        own = float(more / each)  # attention's FLOPs a byte
        for ratio in (
            own * spread(rng, 0.05, 0.95),
            own * spread(rng, 1.05, 30),
            spread(rng, 100, 900),
        ):
            bandwidth *= 1e3 ** draw(rng, -2, 1)
            peak = bandwidth * ratio
            lead = each * Fraction(peak) / Fraction(bandwidth) - more
            context = fixed / lead - 1 if lead > 0 else math.inf
            right = max(0.0, float(context))
            near = lead > 0 and abs(context) * 1000 < 1
            if abs(float(lead)) * 1000 < more or near:
                continue
            found = student.ridge_context(config, peak, bandwidth, kv_bits)
            close(found, right, "the ridge context", 1e-6 if right < 1 else SUBTRACTED)
    alike_contexts(student)
    d, inside = LARGE["hidden_size"], LARGE["intermediate_size"]
    shapes = [(d, d), (d, 1024), (d, 1024), (d, d), (d, inside), (inside, d), (d, inside)]
    _, fixed, more, each = linear(LARGE, shapes, d, 1024, 16, 16)
    right = fixed / (each * Fraction(2.25e15) / Fraction(8e12) - more) - 1
    close(student.ridge_context(LARGE, 2.25e15, 8e12), right, "that of 405B", SUBTRACTED)
    # just above attention's own 16: a context of 1.6 billion; every term here is exact in floats
    right = fixed / (each * Fraction(16 + 2**-10) - more) - 1
    found = student.ridge_context(LARGE, (16 + 2**-10) * 2.0**40, 2.0**40)
    close(found, right, "that of 405B, a low ridge", NEARLY)  # in seconds less exact
    for kv_bits in (8, 8.5):
        right = fixed / (each * Fraction(kv_bits) / 16 * Fraction(281.25) - more) - 1
        close(student.ridge_context(LARGE, 2.25e15, 8e12, kv_bits), right, "405B", SUBTRACTED)


@exercise(
    "ex5",
    points=1,
    invariant="negative contexts, machines that do nothing and bits of 0 raise ValueError",
    cause="functions of earlier exercises that are not called with what they have to check",
)
def test_what_a_ridge_refuses(student, rng):
    config, shapes, wide, narrow = random_config(rng)
    right, _ = batch_of(linear(config, shapes, wide, narrow, 16, 16), 0, 1e6, 1e6)
    close(student.ridge_batch(config, 0, 1e6, 1e6), right, "context 0", SUBTRACTED)
    # one layer, d = 8: 592 weights, 1216 FLOPs and 32 bytes of a sequence, which meet at ridge 38
    one = {"vocab_size": 10, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    one |= {"num_attention_heads": 4, "gated_mlp": False}
    for bandwidth in (1, 16):
        close(
            student.ridge_batch(one, 0, 38 * bandwidth, bandwidth), math.inf, "lines side by side"
        )
    right, _ = batch_of((Fraction(1184), 1184, 32, Fraction(32)), 0, 38 * (1 - 2**-14), 1.0)
    found = student.ridge_batch(one, 0, 38 * (1 - 2**-14), 1.0)
    close(found, right, "lines nearly side by side", SUBTRACTED)
    for speed in (1e-9, 1e9, 1e18):  # what is left may be any number of seconds
        right, _ = batch_of((Fraction(1184), 1184, 32, Fraction(32)), 0, 19 * speed, speed)
        found = student.ridge_batch(one, 0, 19 * speed, speed)
        close(found, right, f"a machine of {speed:g} bytes a second", SUBTRACTED)
    found = after_error(student, "ridge_batch", (one, -1, 19, 1), (one, 0, 19, 1))
    close(found, 1184 / (1216 / 19 - 32), "a ridge batch after a context of -1", SUBTRACTED)
    found = after_error(student, "ridge_context", (one, 2.0, 1.0, 0), (one, 2.0, 1.0))
    close(found, 1184 / 32 - 1, "a ridge context after bits of 0", SUBTRACTED)
    parts = linear(one, [(8, 8)] * 4 + [(8, 16)] * 2, 8, 8, 16, 16)
    right, _ = batch_of(parts, 0, 38 * (1 - 2**-24), 1.0)
    found = student.ridge_batch(one, 0, 38 * (1 - 2**-24), 1.0)
    close(found, right, "lines more nearly side by side", NEARLY)
    _, fixed, more, each = parts  # attention's own intensity is 1
    right = fixed / (each * Fraction(1 + 2**-24) - more) - 1
    close(student.ridge_context(one, 1 + 2**-24, 1.0), right, "a ridge just above 1", NEARLY)
    refused(
        (lambda: student.ridge_batch(config, 5, 1e15, 1, 0), "weights of 0 bits, no batch"),
        (lambda: student.ridge_batch(config, 5, 1, 1e15, -4), "weights of -4 bits"),
        (lambda: student.ridge_batch(config, 5, 1e12, 1e11, 4, -8), "values of -8 bits"),
        (lambda: student.ridge_batch(config, 5, 1e12, 1e11, -4, -8), "-4 and -8 bits"),
        (lambda: student.ridge_batch(config, 5, -1e12, 1e11, -4), "-4 bits, a peak below 0"),
        (lambda: student.ridge_batch(config, -5, 1e12, 1e11), "a context of -5"),
        (lambda: student.ridge_context(config, -1e12, 1e11, -8), "-8 bits, a peak below 0"),
        (lambda: student.ridge_context(config, 1e12, -1e11, -8), "-8 bits, a bandwidth below 0"),
        (lambda: student.ridge_batch(config, -1, 1e12, 1e11), "a context of -1"),
        (lambda: student.ridge_batch(config, 5, 1e12, 1e11, 0), "weights of 0 bits"),
        (lambda: student.ridge_batch(config, 5, 1e12, 1e11, 4, 0), "values of 0 bits"),
        (lambda: student.ridge_context(config, 1e12, 1e11, 0), "values of 0 bits"),
        (lambda: student.ridge_context(config, 1e12, 1e11, -8), "values of -8 bits"),
    )
    for bad in ((0, 1e11), (1e12, 0), (-1.0, 1e11), (1e12, -1.0), (-1e12, -1e11)):
        refused(
            (lambda m=bad: student.ridge_batch(config, 5, *m), "no machine"),
            (lambda m=bad: student.ridge_context(config, *m), "no machine"),
        )


# ---- exercise 6 ------------------------------------------------------------------------------


@exercise(
    "ex6",
    points=2.5,
    invariant="the sizes of all tensors of the model, added up",
    cause="a tied table, a norm, a gate or a field that is None",
)
def test_parameters_of_any_config(student, rng):
    rights, models = [], configs(rng, 50) + alike_configs()
    for config, shapes, _, _ in models:
        d, layers, vocab = (config[n] for n in ("hidden_size", "num_hidden_layers", "vocab_size"))
        tensors = [vocab * d, *[matrix_weights(shapes), d, d] * layers, d]
        tensors += [] if config.get("tie_word_embeddings") else [vocab * d]
        close(student.parameters(config), sum(tensors), "parameters")
        rights.append(sum(tensors))
    calls = [m[:1] for m in models[-11:]]
    kept(student, "parameters", calls, rights[-11:], "parameters of models alike")
    odd = {"vocab_size": 5, "hidden_size": 10, "intermediate_size": 7, "num_hidden_layers": 1}
    odd |= {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4}
    close(student.parameters(odd), 2 * 50 + 10 * (48 + 24 + 21) + 30, "6 heads, hidden size 10")
    close(student.parameters(LARGE), 405_853_388_800, "parameters of 405B")


@exercise(
    "ex6",
    points=2.5,
    invariant="6 N D is the compute and D / N the ratio",
    cause="20 built in, a root of the wrong thing",
)
def test_any_compute(student, rng):
    for ratio in (20, 1, 2000, *(spread(rng, 0.1, 1000) for _ in range(12))):
        for compute in (1.0, 1e30, spread(rng, 1, 1e29), spread(rng, 1e17, 1e26)):
            found = student.chinchilla(compute, ratio)
            assert isinstance(found, tuple) and len(found) == 2, (
                "chinchilla must return two numbers"
            )
            n, tokens = (expect_number(x, "chinchilla") for x in found)
            close(6 * n * tokens, compute, "6 N D", 1e-9)
            close(tokens / n, ratio, "D / N", 1e-9)
            assert n > 0, "parameters below 0"
    for compute, ratio in ((0.5, 20), (6e12, 0.25), (600, 1), (150, 4), (2400, 4)):
        n, tokens = student.chinchilla(compute, ratio)
        close(6 * n * tokens, compute, "6 N D", 1e-9)
        close(tokens / n, ratio, "D / N", 1e-9)
    n, tokens = student.chinchilla(spread(rng, 1e17, 1e26))
    close(tokens / n, 20, "D / N without a ratio", 1e-9)


def joules(config, shapes, wide, narrow, prompt, new, m, batch, bits, kv_bits):
    """Pass by pass, in fractions."""
    total = Fraction(0)
    for tokens, cached in [(prompt, 0), *((1, prompt + i) for i in range(new - 1))]:
        flops = flops_of(config, shapes, wide, tokens, cached, batch)
        moved = bytes_of(config, shapes, narrow, tokens, cached, batch, bits, kv_bits)
        time = max(flops / Fraction(m["peak"]), moved / Fraction(m["bandwidth"]))
        total += flops * Fraction(m["joules_per_flop"]) + moved * Fraction(m["joules_per_byte"])
        total += time * Fraction(m["idle_watts"])
    return total / batch


def alike_sentences(student):
    """Models of which one field differs; then arguments, and one machine that changes.

    A prompt of 40 is bound by computing, and the tokens behind it by memory."""
    usual = {"peak": 1e12, "bandwidth": 1e11, "joules_per_flop": 1e-12, "joules_per_byte": 1e-10}
    usual["idle_watts"] = 1.0
    models = alike_configs()
    first = [40, 3, usual, 2, 16, 16]
    calls = [(m, *first) for m in models]
    for name, value in (("peak", 2e12), *((name, 2 * usual[name]) for name in list(usual)[1:])):
        calls += [(models[0], *first), (models[0], 40, 3, usual | {name: value}, *first[3:])]
    for place, value in (
        (0, 41), (0, 9000), (1, 4), (3, 3), (4, 8), (4, 1.58), (4, 0.5), (5, 8), (5, 3.3), (5, 0.5),
    ):  # fmt: skip
        calls.append((models[0], *[value if i == place else x for i, x in enumerate(first)]))
    rights = [joules(*m, *args) for m, *args in calls]
    calls = [(m[0], *args) for m, *args in calls]
    kept(student, "sentence_joules", calls, rights, "joules of sentences alike", SUBTRACTED)


@exercise(
    "ex6",
    points=3,
    invariant="every pass has its FLOPs, bytes and seconds; a sentence bears its share of the "
    "batch",
    cause="n passes behind the prompt, a context that stands still, one roofline for all passes, "
    "the batch forgotten in one of the terms",
)
def test_any_sentence(student, rng):
    for number, (config, shapes, wide, narrow) in enumerate(configs(rng, 20)):
        bandwidth = spread(rng, 1e9, 8e12)
        m = {"peak": bandwidth * spread(rng, 0.2, 500), "bandwidth": bandwidth}
        m |= {"joules_per_flop": spread(rng, 1e-13, 1e-11), "idle_watts": spread(rng, 1, 200)}
        m["joules_per_byte"] = spread(rng, 1e-12, 1e-9)
        if number < 3:
            m |= dict.fromkeys([("joules_per_flop", "joules_per_byte", "idle_watts")[number]], 0)
        prompt, new, batch = draw(rng, 1, 30), draw(rng, 1, 9), draw(rng, 1, 40)
        some = ((1, 1), (1, 2), (5000, 3), (30, 60))
        prompt, new = some[number] if number < len(some) else (prompt, new)
        bits, kv_bits = draw(rng, 4, 128) / 4, draw(rng, 4, 128) / 4
        args = (prompt, new, m, batch, bits, kv_bits)
        right = joules(config, shapes, wide, narrow, *args)
        close(student.sentence_joules(config, *args), right, "joules of a sentence", SUBTRACTED)
        right = joules(config, shapes, wide, narrow, prompt, new, m, 1, 16, 16)
        close(student.sentence_joules(config, prompt, new, m), right, "joules, alone", SUBTRACTED)
    alike_sentences(student)
    for config, shapes, wide, narrow in configs(rng, 5):  # computing first, then moving
        first, last = (
            flops_of(config, shapes, wide, 1, cached, 64)
            / bytes_of(config, shapes, narrow, 1, cached, 64, 16, 16)
            for cached in (2, 300)
        )
        m |= {"peak": 1e9 * math.sqrt(first * last), "bandwidth": 1e9, "idle_watts": 100.0}
        right = joules(config, shapes, wide, narrow, 2, 300, m, 64, 16, 16)
        found = student.sentence_joules(config, 2, 300, m, 64)
        close(found, right, "joules of passes on both sides of the ridge", SUBTRACTED)


@exercise(
    "ex6",
    points=1,
    invariant="no compute, no tokens, no machine and no sequences raise ValueError",
    cause="<= in place of <, a check that only one argument has",
)
def test_what_calculators_refuse(student, rng):
    config, shapes, wide, narrow = random_config(rng)
    m = {"peak": 1e12, "bandwidth": 1e11, "joules_per_flop": 1e-12, "joules_per_byte": 1e-10}
    m["idle_watts"] = 10.0
    right = joules(config, shapes, wide, narrow, 1, 1, m, 1, 16, 16)
    close(student.sentence_joules(config, 1, 1, m), right, "joules of one token", SUBTRACTED)
    found = after_error(
        student, "sentence_joules", (config, 3, 5, m | {"bandwidth": 0}), (config, 1, 1, m)
    )
    close(found, right, "joules after a machine that is refused", SUBTRACTED)
    n, tokens = after_error(student, "chinchilla", (0, 20.0), (2400, 4))
    close(n, 10, "parameters after no compute", 1e-9)
    rests = m | {"idle_watts": 0}
    flops_only = rests | {"joules_per_byte": 0}
    free = flops_only | {"joules_per_flop": 0}
    close(student.sentence_joules(config, 3, 2, free), 0, "joules where nothing costs any")
    for power in (flops_only, free):
        refused(
            (lambda p=power: student.sentence_joules(config, 3, 2, p, 0), "no sentence"),
            (lambda p=power: student.sentence_joules(config, 3, 2, p, 1, 0), "0 bits, free bytes"),
            (lambda p=power: student.sentence_joules(config, 3, 2, p, 1, 4, 0), "0 bits, free"),
            (lambda p=power: student.sentence_joules(config, 3, 2, p | {"peak": 0}), "a peak of 0"),
            (lambda p=power: student.sentence_joules(config, 3, 2, p | {"bandwidth": 0}), "0 B/s"),
        )
    refused(
        (lambda: student.sentence_joules(config, -2, -3, m), "a prompt of -2, -3 new tokens"),
        (lambda: student.sentence_joules(config, 3, 2, m, -2), "-2 sentences"),
        (lambda: student.sentence_joules(config, 3, 2, m, 1, -4), "weights of -4 bits"),
        (lambda: student.sentence_joules(config, 3, 2, m, 1, 4, -8), "values of -8 bits"),
        (lambda: student.sentence_joules(config, 3, 2, m, 1, -4, -8), "-4 and -8 bits"),
        (
            lambda: student.sentence_joules(config, 3, 2, m | {"peak": -1.0, "bandwidth": -1.0}),
            "a peak and a bandwidth of -1",
        ),
        (lambda: student.chinchilla(0, 20.0), "no compute"),
        (lambda: student.chinchilla(-1.0, 20.0), "a compute of -1"),
        (lambda: student.chinchilla(-1.0, -20.0), "both below 0"),
        (lambda: student.chinchilla(1e20, 0), "0 tokens a parameter"),
        (lambda: student.chinchilla(1e20, -2.0), "-2 tokens a parameter"),
        (lambda: student.sentence_joules(config, 0, 3, m), "no prompt"),
        (lambda: student.sentence_joules(config, -2, 3, m), "a prompt of -2"),
        (lambda: student.sentence_joules(config, 3, 0, m), "no new token"),
        (lambda: student.sentence_joules(config, 3, -1, m), "-1 new tokens"),
        (lambda: student.sentence_joules(config, 3, 2, m, 0), "no sentence"),
        (lambda: student.sentence_joules(config, 3, 2, m, 1, 0), "weights of 0 bits"),
        (lambda: student.sentence_joules(config, 3, 2, m, 1, 4, 0), "values of 0 bits"),
        (lambda: student.sentence_joules(config, 3, 2, rests | {"peak": 0}), "a peak of 0, 0 W"),
        (lambda: student.sentence_joules(config, 3, 2, rests | {"bandwidth": -1.0}), "-1 bytes/s"),
        (lambda: student.sentence_joules(config, 3, 2, m | {"peak": -1.0}), "a peak of -1"),
        (lambda: student.sentence_joules(config, 3, 2, m | {"bandwidth": -1.0}), "-1 bytes/s"),
        (lambda: student.sentence_joules(config, 3, 2, m | {"peak": 0}), "a peak of 0"),
        (lambda: student.sentence_joules(config, 3, 2, m | {"bandwidth": 0}), "a bandwidth of 0"),
    )
