"""Public tests of lab00: what lab.check runs.  Numbers to check by hand, and properties."""

import math

import numpy
import torch

from efflib.lab import exercise, expect_close, expect_error, expect_number

ROUNDING = 1e-12  # relative: a few operations on Python's floats, in any order
SMALL = {"vocab_size": 10, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4}
LLAMA_7B = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008}
LLAMA_7B |= {"num_hidden_layers": 32, "num_attention_heads": 32}
LLAMA_8B = {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336}
LLAMA_8B |= {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
H100 = (989.4e12, 3.35e12)  # FLOP/s in 16 bits without sparsity, bytes/s


def close(value, expected, what, rtol=ROUNDING):
    """value is a number, and equal but for rounding."""
    value = value.item() if isinstance(value, numpy.number) else value  # a sum of an array
    expect_close(float(expect_number(value, what)), float(expected), what=what, rtol=rtol)


def refused(*cases):
    """cases: (call, what was passed)"""
    for call, what in cases:
        expect_error(ValueError, call, what)


# ---- exercise 1: perplexity ------------------------------------------------------------------


def in_base(probabilities, base):
    """Losses of tokens with these probabilities. [tokens] float64"""
    return torch.tensor([-math.log(p, base) for p in probabilities], dtype=torch.float64)


@exercise(
    "ex1",
    points=2,
    invariant="a model that gives every token 1/4 has perplexity 4, in whatever base its losses "
    "are",
    cause="e to the power of a loss in bits, as on the slide: base and logarithm must agree",
)
def test_one_in_four_in_every_base(student, rng):
    for base, loss in ((2, 2.0), (math.e, math.log(4)), (4, 1.0), (10.0, math.log10(4))):
        texts = [torch.full((n,), loss, dtype=torch.float64) for n in (3, 5)]
        close(
            student.perplexity(texts, base), 4, f"perplexity of losses {loss:.4g}, base {base:.4g}"
        )
    natural = torch.tensor([math.log(4)] * 3, dtype=torch.float64)
    close(student.perplexity([natural]), 4, "perplexity without a base (e)")
    refused(
        (lambda: student.perplexity([torch.ones(3)], 1), "base 1"),
        (lambda: student.perplexity([torch.ones(3)], 0.5), "base 0.5"),
    )


@exercise(
    "ex1",
    points=1,
    invariant="every token counts once: 3 tokens of 1 bit and 1 token of 5 bits are 2 bits a token",
    cause="the mean of the texts' means, or of their perplexities: a short text then counts too "
    "much",
)
def test_texts_of_unequal_length(student, rng):
    long, short = torch.ones(3), torch.tensor([5.0])
    for texts in ([long, short], [short, long], [torch.cat([long, short])]):
        shown = [x.tolist() for x in texts]
        close(student.perplexity(texts, 2), 4, f"perplexity of {shown} bits")
    close(student.perplexity([long, torch.zeros(0)], 2), 2, "perplexity with an empty text")
    refused(
        (lambda: student.perplexity([], 2), "no text"),
        (lambda: student.perplexity([torch.zeros(0)], 2), "no token"),
    )


@exercise(
    "ex1",
    points=1,
    invariant="bits of all tokens, divided by bytes: it does not matter how the text was cut",
    cause="bits a token, nats in place of bits, or the mean over texts",
)
def test_bits_per_byte_by_hand(student, rng):
    for texts, base, size, expected in (
        ([torch.tensor([3.0, 5.0])], 2, 4, 2),
        ([torch.tensor([3.0]), torch.tensor([1.0, 4.0])], 2, 4, 2),
        ([torch.tensor([1.0, 0.5])], 4, 3, 1),
        ([in_base([0.5, 0.25], math.e)], math.e, 6, 0.5),
    ):
        what = f"bits of {[x.tolist() for x in texts]} in base {base:.4g}, {size} bytes"
        close(student.bits_per_byte(texts, size, base), expected, what, 1e-9)
    close(student.bits_per_byte([in_base([0.5, 0.25], math.e)], 3), 1, "without a base (e)", 1e-9)
    refused(
        (lambda: student.bits_per_byte([torch.ones(3)], 0, 2), "no bytes"),
        (lambda: student.bits_per_byte([torch.ones(3)], 4, 1), "base 1"),
    )


@exercise(
    "ex1",
    points=2,
    invariant="each token but the first is scored once, behind as many tokens as fit",
    cause="windows that begin at multiples of the stride: the last one is then short; or the first "
    "token of a window is scored, with nothing before it",
)
def test_windows_by_hand(student, rng):
    for asked, expected in (
        ((9, 4, 2), [(0, 4, 1), (2, 6, 4), (4, 8, 6), (5, 9, 8)]),
        ((8, 4, 3), [(0, 4, 1), (3, 7, 4), (4, 8, 7)]),
        ((6, 4, 1), [(0, 4, 1), (1, 5, 4), (2, 6, 5)]),
        ((3, 4, 2), [(0, 3, 1)]),
        ((1, 4, 2), []),
    ):
        found = student.strided_windows(*asked)
        assert isinstance(found, list), f"strided_windows returned {type(found).__name__}"
        seen = [tuple(w) if isinstance(w, list) else w for w in found]
        about = "tokens {}, window {}, stride {}".format(*asked)
        assert seen == expected, f"{about}: {seen}, expected {expected}"
    refused(
        (lambda: student.strided_windows(9, 4, 4), "a stride as long as the window"),
        (lambda: student.strided_windows(9, 4, 0), "a stride of 0"),
    )


# ---- exercise 2: FLOPs and bytes of a step ---------------------------------------------------


@exercise(
    "ex2",
    points=1.5,
    invariant="hidden size 8, 4 heads, 16 inside: 640 weights a layer; 12 d^2 for the lecture's "
    "layer",
    cause="query heads where key heads count, two matrices in a gated MLP (it has three), or "
    "gated_mlp not read",
)
def test_a_layer_by_hand(student, rng):
    for changes, expected in (
        ({}, 4 * 64 + 3 * 128),
        ({"gated_mlp": False}, 4 * 64 + 2 * 128),
        ({"gated_mlp": None}, 4 * 64 + 3 * 128),
        ({"num_key_value_heads": 1}, 2 * 64 + 2 * 16 + 3 * 128),
        ({"num_key_value_heads": None, "head_dim": None}, 4 * 64 + 3 * 128),
        ({"head_dim": 5}, 8 * 5 * 16 + 3 * 128),
        ({"gated_mlp": False, "intermediate_size": 32}, 12 * 64),
    ):
        found = student.layer_weights(SMALL | changes)
        close(found, expected, f"layer_weights with {changes}")
    close(student.layer_weights(LLAMA_7B), 202_375_168, "layer_weights of Llama-2-7B")


@exercise(
    "ex2",
    points=1,
    invariant="2 new tokens behind 3 cached ones: 4 + 5 = 9 pairs",
    cause="all new tokens see all tokens (no causal mask), or a token does not see itself",
)
def test_pairs_by_hand(student, rng):
    for new, cached, expected in ((1, 0, 1), (1, 3, 4), (2, 3, 9), (4, 0, 10), (3, 100, 306)):
        close(student.pairs(new, cached), expected, f"pairs({new}, {cached})")
    close(student.pairs(5), 15, "pairs(5), nothing cached")
    refused(
        (lambda: student.pairs(0, 3), "no new token"),
        (lambda: student.pairs(1, -1), "-1 cached tokens"),
    )


@exercise(
    "ex2",
    points=1.5,
    invariant="12 L d^2 + L^2 d products (and L d) of a prefix come out, and 2 FLOPs for each "
    "product",
    cause="products in place of FLOPs, only one of attention's two products, or lm_head for every "
    "token of a prompt",
)
def test_the_lectures_layer(student, rng):
    d, vocab = 64, 100
    layer = {"hidden_size": d, "intermediate_size": 4 * d, "gated_mlp": False}
    layer |= {"num_attention_heads": 8, "num_hidden_layers": 1, "vocab_size": vocab}
    for n in (1, 7, 200):
        products = 12 * n * d**2 + n**2 * d + n * d
        found = student.step_flops(layer, n)
        close(found, 2 * (products + vocab * d), f"FLOPs of a prefix of {n} tokens")
        products = 12 * d**2 + 2 * (n + 1) * d
        found = student.step_flops(layer, 1, n)
        close(found, 2 * (products + vocab * d), f"FLOPs of the token behind {n}")
    three = student.step_flops(layer | {"num_hidden_layers": 5}, 2, 9, 3)
    products = 3 * (5 * (24 * d**2 + 2 * 21 * d) + vocab * d)
    close(three, 2 * products, "FLOPs of 5 layers, 3 sequences, 2 new tokens behind 9")
    refused((lambda: student.step_flops(layer, 1, 0, 0), "a batch of 0"))


@exercise(
    "ex2",
    points=2,
    invariant="weights are read once for the whole batch, keys and values for each sequence",
    cause="weights times batch, the token table counted although only a row of it is read, query "
    "heads where key heads count, or a cached token that is not read",
)
def test_bytes_by_hand(student, rng):
    weights = 2 * 640 + 80
    for args, expected in (
        ((1,), 2 * weights + 64),
        ((1, 0, 3), 2 * weights + 3 * 64),
        ((1, 9, 3), 2 * weights + 3 * 10 * 64),
        ((5, 9, 3), 2 * weights + 3 * 14 * 64),
        ((1, 9, 3, 4), weights / 2 + 3 * 10 * 64),
        ((1, 9, 3, 4.5, 8), 4.5 / 8 * weights + 3 * 10 * 32),
    ):
        close(student.step_bytes(SMALL, *args), expected, f"step_bytes(SMALL, {args})")
    tied = SMALL | {"tie_word_embeddings": True, "num_key_value_heads": 2}
    close(student.step_bytes(tied, 1), 2 * (2 * 576 + 80) + 32, "with tied tables, 2 key heads")
    close(student.step_bytes(LLAMA_7B, 1, 2047), 13_214_154_752 + 2**30, "Llama-2-7B behind 2047")
    refused(
        (lambda: student.step_bytes(SMALL, 0), "no new token"),
        (lambda: student.step_bytes(SMALL, 1, 0, 1, 0), "weights of 0 bits"),
        (lambda: student.step_bytes(SMALL, 1, 0, 1, 16, -8), "values of -8 bits"),
    )


# ---- exercise 3: the roofline ----------------------------------------------------------------


@exercise(
    "ex3",
    points=2,
    invariant="an H100 has its ridge at 295 FLOPs a byte; below it speed is intensity x bandwidth",
    cause="bandwidth / peak, or the larger of the two limits in place of the smaller",
)
def test_an_h100_by_hand(student, rng):
    close(student.ridge(*H100), 295.3432835820896, "ridge of an H100", 1e-9)
    close(student.intensity(8, 4), 2, "intensity(8, 4)")
    for at, expected in ((1, 3.35e12), (100, 335e12), (300, 989.4e12), (math.inf, 989.4e12)):
        close(student.attainable(at, *H100), expected, f"attainable at {at} FLOPs a byte")
    close(student.attainable(3, 8, 2), 6, "attainable(3, 8, 2)")
    refused(
        (lambda: student.ridge(8, 0), "a bandwidth of 0"),
        (lambda: student.attainable(1, 0, 2), "a peak of 0"),
        (lambda: student.attainable(-1, 8, 2), "an intensity of -1"),
    )


@exercise(
    "ex3",
    points=2,
    invariant="the longer of computing and moving is the time; at the ridge computing names it",
    cause="the sum of both, the smaller one, or 0 / 0 where nothing is to be done",
)
def test_time_and_limit_by_hand(student, rng):
    for flops, moved, expected, name in (
        (80, 4, 10, "compute"),
        (8, 40, 20, "memory"),
        (32, 8, 4, "compute"),
        (16, 8, 4, "memory"),
        (0, 6, 3, "memory"),
        (16, 0, 2, "compute"),
    ):
        what = f"({flops} FLOPs, {moved} bytes, 8 FLOP/s, 2 bytes/s)"
        close(student.seconds(flops, moved, 8, 2), expected, f"seconds{what}")
        found = student.limit(flops, moved, 8, 2)
        assert found == name, f"limit{what} is {found!r}, expected {name!r}"
    close(student.seconds(0, 0, 8, 2), 0, "seconds of nothing")
    for (flops, moved), expected in (((6, 0), math.inf), ((0, 6), 0), ((0, 0), 0)):
        close(student.intensity(flops, moved), expected, f"intensity({flops}, {moved})")
    refused((lambda: student.seconds(-1, 4, 8, 2), "-1 FLOPs"))


@exercise(
    "ex3",
    points=2,
    invariant="parts that follow one another take the sum of their own times, not that of their "
    "sums",
    cause="one roofline for the sums: what one part leaves unused, another cannot use later",
)
def test_parts_in_turn_by_hand(student, rng):
    for parts, expected in (
        ([(80, 4), (8, 40)], 30),
        ([(8, 40), (80, 4)], 30),
        ([(88, 44)], 22),
        ([(0, 6), (16, 0), (0, 0)], 5),
        ([], 0),
    ):
        close(student.in_turn(parts, 8, 2), expected, f"in_turn({parts}, 8, 2)")
    refused(
        (lambda: student.in_turn([(1, 1), (1, -1)], 8, 2), "-1 bytes"),
        (lambda: student.in_turn([(1, 1)], 8, 0), "a bandwidth of 0"),
    )


# ---- exercise 4: metrics of a server ---------------------------------------------------------


def request(arrival, *times, finished=True):
    return {"arrival": arrival, "times": list(times), "finished": finished}


def same(found, expected, what):
    """A dictionary of numbers and None."""
    assert isinstance(found, dict), f"{what} is of type {type(found).__name__}, not a dict"
    assert set(found) == set(expected), f"{what} has {sorted(found)}, not {sorted(expected)}"
    for name, value in expected.items():
        if value is None or found[name] is None:
            seen = found[name]
            assert seen is None and value is None, f"{what}: {name} is {seen}, expected {value}"
        else:
            close(found[name], value, f"{what}: {name}")


@exercise(
    "ex4",
    points=2,
    invariant="latency = TTFT + (n - 1) TPOT: the first token's time is in TTFT already",
    cause="TPOT over n tokens, or from the arrival: the lecture's formula counts one token twice",
)
def test_one_request_by_hand(student, rng):
    for asked, ttft, tpot, latency in (
        (request(1.0, 3.0, 3.5, 5.0), 2, 1, 4),
        (request(1.0, 3.0), 2, None, 2),
        (request(1.0, 3.0, 4.5, finished=False), 2, 1.5, None),
        (request(1.0, finished=False), None, None, None),
        (request(0.0, 0.5, 0.5, 2.5), 0.5, 1, 2.5),
    ):
        expected = {"ttft": ttft, "tpot": tpot, "latency": latency}
        same(student.timings(asked), expected, f"timings({asked})")
    refused(
        (lambda: student.timings(request(3.0, 2.0, 4.0)), "a token before the arrival"),
        (lambda: student.timings(request(1.0, 3.0, 2.5)), "a token before the one before it"),
    )


@exercise(
    "ex4",
    points=1,
    invariant="percentile 50 is the median, 0 the smallest, 100 the largest value, linear between",
    cause="values that are not sorted, n in place of n - 1, or the nearest value without a line",
)
def test_percentiles_by_hand(student, rng):
    for values, q, expected in (
        ([3, 1, 2], 50, 2),
        ([4.0, 1.0, 2.0, 3.0], 50, 2.5),
        ([10.0, 0.0], 99, 9.9),
        ([5.0, 1.0, 9.0], 0, 1),
        ([5.0, 9.0, 1.0], 100, 9),
        ([7.0], 99, 7),
    ):
        close(student.percentile(values, q), expected, f"percentile({values}, {q})", 1e-9)
    refused(
        (lambda: student.percentile([], 50), "no values"),
        (lambda: student.percentile([1.0], 101), "percentile 101"),
    )


@exercise(
    "ex4",
    points=3,
    invariant="TPOT is a mean over requests, ITL one over gaps; goodput counts whole requests",
    cause="one mean for both, requests that wait counted as good, seconds from 0 in place of the "
    "first arrival, or tokens of unfinished requests left out",
)
def test_a_log_by_hand(student, rng):
    log = [
        request(3.0, 4.0, 6.0),
        request(2.0, 2.5, 3.0, 3.5, 4.0, 4.5),
        request(2.5, 5.0),
        request(2.0, 3.0, 4.5, finished=False),
        request(4.0, finished=False),
    ]
    both = {"ttft": 1.25, "tpot": (2 + 0.5 + 1.5) / 3, "itl": 5.5 / 6, "itl_p99": 1.975}
    rates = {"throughput": 10 / 4, "goodput": 2 / 4}
    about = (
        f"summarize of (arrival, times) {[(r['arrival'], r['times']) for r in log]}, the last two"
    )
    about += " unfinished, limits {} and {}"
    same(student.summarize(log, 1.0, 2.0), both | rates, about.format(1, 2))
    strict = both | {"throughput": 2.5, "goodput": 1 / 4}
    same(student.summarize(log, 1.0, 1.9), strict, about.format(1, 1.9))
    late = both | {"throughput": 2.5, "goodput": 2 / 4}
    same(student.summarize(log, 9.0, 1.0), late, about.format(9, 1))
    nothing = dict.fromkeys(both) | {"throughput": 0.0, "goodput": 0.0}
    same(student.summarize(log[-1:], 1.0, 1.0), nothing, "summarize of a request that waits")
    same(student.summarize([], 1.0, 1.0), nothing, "summarize([])")


# ---- exercise 5: when decoding stops being bound by memory -----------------------------------


@exercise(
    "ex5",
    points=2,
    invariant="at the ridge batch computing takes as long as reading: Llama-2-7B on an H100, 299",
    cause="weights times the batch, keys and values forgotten, or rounded to a whole number",
)
def test_a_batch_by_hand(student, rng):
    # 1 layer, d = 8: 4 d^2 + 2 d 16 + 10 d = 592 weights, 2 (592 + 2 d (context + 1)) FLOPs
    one = SMALL | {"num_hidden_layers": 1, "gated_mlp": False}
    close(
        student.ridge_batch(one, 0, 1024, 16),
        math.inf,
        "ridge_batch of one layer, context 0, ridge 64",
    )
    close(
        student.ridge_batch(one, 0, 608, 16),
        math.inf,
        "ridge_batch of one layer, context 0, ridge 38: equally steep",
    )
    close(
        student.ridge_batch(one, 0, 600, 16),
        1184 / (1216 / 37.5 - 32),
        "ridge_batch of one layer, context 0, ridge 37.5",
        1e-9,
    )
    close(
        student.ridge_batch(one, 0, 32, 16),
        1184 / (1216 / 2 - 32),
        "ridge_batch of one layer, context 0, ridge 2",
    )
    close(
        student.ridge_batch(one, 9, 32, 16),
        1184 / (1504 / 2 - 320),
        "ridge_batch of one layer, context 9, ridge 2",
    )
    close(
        student.ridge_batch(one, 9, 32, 16, 4, 8),
        296 / (1504 / 2 - 160),
        "the same in 4 and 8 bits",
    )
    close(student.ridge_batch(LLAMA_7B, 0, *H100), 298.83318763, "Llama-2-7B on an H100", 1e-8)
    close(student.ridge_batch(LLAMA_7B, 50, *H100), 730.325, "the same behind 50 tokens", 1e-6)
    refused((lambda: student.ridge_batch(one, -1, 32, 16), "a context of -1"))


@exercise(
    "ex5",
    points=2,
    invariant="where a sequence's own bytes take longer than its FLOPs, no batch is large "
    "enough: inf",
    cause="a negative batch in place of inf, or weights that seem to be the only bytes",
)
def test_no_batch_is_large_enough(student, rng):
    for config, context, never in (
        (LLAMA_7B, 84, False),
        (LLAMA_7B, 85, True),
        (LLAMA_7B, 10**6, True),
        (LLAMA_8B, 392, False),
        (LLAMA_8B, 393, True),
    ):
        found = expect_number(student.ridge_batch(config, context, *H100), "ridge_batch")
        about = f"hidden size 4096, {config.get('num_key_value_heads', 32)} key heads"
        about += f", {context} cached tokens on an H100: batch {found:.6g}"
        right = "inf" if never else "a finite number above 0"
        assert math.isinf(found) == never and found > 0, f"{about}, expected {right}"


@exercise(
    "ex5",
    points=2,
    invariant="no batch is enough from 84.6 cached tokens on for Llama-2-7B on an H100; for a "
    "ridge "
    "below attention's own intensity there is no such context: inf",
    cause="the new token's own key and value forgotten, weights' bytes in it (they drop out), or a "
    "negative context",
)
def test_a_context_by_hand(student, rng):
    # one layer, d = 8: 2 592 FLOPs, and of each token that is seen 32 FLOPs and 32 bytes
    one = SMALL | {"num_hidden_layers": 1, "gated_mlp": False}
    for peak, bits, expected in (
        (32, 16, 1184 / (64 - 32) - 1),
        (48, 16, 1184 / (96 - 32) - 1),
        (64, 8, 1184 / (64 - 32) - 1),
        (16.5, 16, 1184 / (33 - 32) - 1),
        (16, 16, math.inf),
        (8, 16, math.inf),
        (32, 8, math.inf),
        (16 * 1000, 16, 0),
    ):
        found = student.ridge_context(one, peak, 16, bits)
        what = f"ridge_context of one layer, ridge {peak / 16:g}, keys and values in {bits} bits"
        close(found, expected, what, 1e-9)
    close(student.ridge_context(LLAMA_7B, *H100), 84.6279093352, "Llama-2-7B on an H100", 1e-9)
    close(student.ridge_context(LLAMA_8B, *H100), 392.048360656, "Llama-3-8B on an H100", 1e-9)
    refused((lambda: student.ridge_context(one, 32, 0), "a bandwidth of 0"))


# ---- exercise 6: parameters, tokens and joules -----------------------------------------------


@exercise(
    "ex6",
    points=2,
    invariant="Llama-2-7B has 6,738,415,616 parameters, Llama-3-8B 8,030,261,248",
    cause="norms or lm_head forgotten, or a tied table counted twice",
)
def test_parameters_by_hand(student, rng):
    for name, config, expected in (
        ("Llama-2-7B", LLAMA_7B, 6_738_415_616),
        ("Llama-3-8B", LLAMA_8B, 8_030_261_248),
        ("SMALL", SMALL, 2 * 80 + 2 * 640 + 5 * 8),
        ("SMALL, tied", SMALL | {"tie_word_embeddings": True}, 80 + 2 * 640 + 5 * 8),
        ("SMALL, not tied", SMALL | {"tie_word_embeddings": None}, 2 * 80 + 2 * 640 + 5 * 8),
    ):
        close(student.parameters(config), expected, f"parameters of {name}")


@exercise(
    "ex6",
    points=2,
    invariant="C = 6 N D and D = 20 N: 1.92e19 FLOPs train 400 million parameters on 8 billion "
    "tokens",
    cause="C / 6 / 20 without the root, 2 N D (a forward pass only), or N and D exchanged",
)
def test_chinchillas_table(student, rng):
    for compute, ratio, expected in (
        (1.92e19, 20.0, (4e8, 8e9)),
        (600.0, 1.0, (10, 10)),
        (600.0, 4.0, (5, 20)),
    ):
        found = student.chinchilla(compute, ratio)
        right = "expected a tuple (parameters, tokens)"
        assert isinstance(found, tuple) and len(found) == 2, f"chinchilla: {found}, {right}"
        for value, right, what in zip(found, expected, ("parameters", "tokens"), strict=True):
            close(value, right, f"{what} for {compute:g} FLOPs at {ratio:g} tokens each", 1e-9)
    close(student.chinchilla(480.0)[0], 2, "parameters for 480 FLOPs, 20 tokens each", 1e-9)
    refused(
        (lambda: student.chinchilla(0.0), "no FLOPs"),
        (lambda: student.chinchilla(1.0, -1.0), "-1 tokens a parameter"),
    )


@exercise(
    "ex6",
    points=2,
    invariant="n tokens take the pass over the prompt and n - 1 more; a batch shares the weights",
    cause="n passes behind the prompt, a context that does not grow, power at rest forgotten, or "
    "joules of the whole batch",
)
def test_joules_by_hand(student, rng):
    machine = {"peak": 64.0, "bandwidth": 4.0, "idle_watts": 0.0}
    flops = machine | {"joules_per_flop": 1.0, "joules_per_byte": 0.0}
    moved = machine | {"joules_per_flop": 0.0, "joules_per_byte": 1.0}
    rest = moved | {"joules_per_byte": 0.0, "idle_watts": 1.0}
    # SMALL: weights 1360 (2720 bytes); a token 2 1280 FLOPs and lm_head 160, 64 bytes of k and v
    first, second = 3 * 2560 + 160 + 64 * 6, 2560 + 160 + 64 * 4
    for power, args, expected in (
        (flops, (3, 1), first),
        (flops, (3, 2), first + second),
        (flops, (3, 3), first + 2 * second + 64),
        (flops, (3, 2, 5), first + second),
        (moved, (3, 1), 2720 + 3 * 64),
        (moved, (3, 2), 2 * 2720 + 7 * 64),
        (moved, (3, 2, 2), 2720 + 7 * 64),
        (moved, (3, 2, 2, 8, 4), 1360 + 7 * 16),
        (rest, (3, 2), (2720 + 3 * 64) / 4 + (2720 + 4 * 64) / 4),
    ):
        prompt, new, *others = args
        found = student.sentence_joules(SMALL, prompt, new, power, *others)
        close(found, expected, f"joules of {args} with {power}", 1e-9)
    refused(
        (lambda: student.sentence_joules(SMALL, 3, 0, flops), "no new token"),
        (lambda: student.sentence_joules(SMALL, 0, 1, flops), "no prompt"),
    )
