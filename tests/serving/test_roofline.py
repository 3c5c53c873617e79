"""The roofline of decoding: limits, the ridge from both sides, and the lecture's Llama-2-7B."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from efflib import zoo
from efflib.meter.roofline import GPUS
from efflib.models.llama import Llama, LlamaConfig
from efflib.moe import traffic
from efflib.quantization.awq import rtn
from efflib.quantization.linear import quantize_weight
from efflib.quantization.packing import W4A16Linear, stored_bytes
from efflib.serving import roofline as r
from efflib.serving.decoder import MODELS, Decoder, Latent, decoder
from efflib.serving.memory import W4, Format

positive = st.floats(1e-3, 1e12)
machines = st.builds(r.Machine, positive, positive)
tokens = st.integers(1, 1000)
dense = st.builds(
    r.Step,
    positive,
    st.just(0.0) | positive,
    positive,
    st.just(0.0),
    st.just(1),
    st.just(1),
    tokens,
)
mixtures = st.builds(
    lambda routed, share, *rest: r.Step(*rest[:4], routed, math.ceil(share * routed), rest[4]),
    st.integers(1, 300),
    st.floats(1e-3, 1),
    *(positive, st.just(0.0) | positive, positive, positive, tokens),
)
steps = dense | mixtures


@given(steps, machines, st.integers(1, 10_000))
def test_the_rate_is_below_both_bounds_and_meets_one(step, machine, batch):
    rate = r.tokens_per_second(step, machine, batch)
    by_compute = machine.peak / step.flops
    by_memory = batch * machine.bandwidth / (r.weights_read(step, batch) + batch * step.kv)
    assert rate == pytest.approx(min(by_compute, by_memory), rel=1e-12)


@given(steps, machines, st.integers(1, 10_000))
def test_more_sequences_never_lower_the_rate(step, machine, batch):
    less, more = (r.tokens_per_second(step, machine, b) for b in (batch, 2 * batch))
    assert more >= less * (1 - 1e-12)


@given(steps, machines)
def test_at_the_ridge_reading_and_computing_take_the_same_time(step, machine):
    b = r.ridge_batch(step, machine)
    lead = step.flops / machine.peak - step.kv / machine.bandwidth
    if lead <= 0:
        assert b == math.inf
        for batch in (1, 10**6):
            reading = (r.weights_read(step, batch) + batch * step.kv) / machine.bandwidth
            # a lead of 0 may be a rounding: then both times are equal but for one
            assert r.step_seconds(step, machine, batch) == pytest.approx(reading, rel=1e-12)
    elif lead > 1e-6 * step.flops / machine.peak:  # else the difference has lost its digits
        reading = (r.weights_read(step, b) + b * step.kv) / machine.bandwidth
        assert reading == pytest.approx(b * step.flops / machine.peak, rel=1e-6)


def test_what_does_not_fit_is_named():
    model = llama_2_7b()
    for options, message in (
        ({"bits": 4, "group_size": 0}, "group_size=0 must be"),
        ({"tokens": -1}, "tokens=-1 must be"),
        ({"bits": 9}, "bits must be an integer"),
    ):
        with pytest.raises(ValueError, match=message):
            r.decode_step(model, **options)


def test_without_sequences_there_is_no_step():
    with pytest.raises(ValueError, match="batch=0"):
        r.tokens_per_second(r.Step(1.0, 0.0, 1.0), r.RTX_4090, 0)


def llama_2_7b():
    config = LlamaConfig(32000, 4096, 11008, 32, 32, 32, 128)
    with torch.device("meta"):
        return Llama(config)


def test_llama_2_7b_by_hand():
    model = llama_2_7b()
    linears = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    norms = 65 * 4096
    plain, packed = r.decode_step(model), r.decode_step(model, 4, 128, tokens=512)
    assert plain.weights == 2 * (linears + norms + 32000 * 4096)
    assert packed.weights == linears * (4 + 20 / 128) / 8 + 2 * (norms + 32000 * 4096)
    assert plain.kv == 0 and packed.kv == 2 * 32 * 4096 * 512 * 2
    assert plain.flops == 2 * (linears + norms + 32000 * 4096)
    assert packed.flops - plain.flops == 32 * 32 * (2 * 128 * 512) * 2  # heads, q k and p v


def test_the_bytes_explain_the_lectures_measurement():
    """50 and 166 tokens per second on an RTX 4090: below both bounds, and so is their ratio."""
    model = llama_2_7b()
    plain, packed = (r.decode_step(model, bits, 128, tokens=512) for bits in (None, 4))
    bounds = [r.tokens_per_second(step, r.RTX_4090) for step in (plain, packed)]
    assert bounds[0] > 50 and bounds[1] > 166
    assert bounds[1] / bounds[0] > 166 / 50 > 0.85 * bounds[1] / bounds[0]


def test_the_machine_is_that_of_the_table_of_gpus():
    gpu = GPUS["RTX 4090"]
    assert r.RTX_4090 == (gpu.bandwidth, gpu.tensor["fp16"])


def test_weights_are_the_bytes_that_packed_linears_store():
    """For the zoo's model: layers of `W4A16Linear`, and 2 bytes for each other parameter."""
    model = zoo.load("target")
    linears = [m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    linears = [m for m in linears if m is not model.lm_head]
    rest = sum(p.numel() for p in model.parameters()) - sum(m.weight.numel() for m in linears)
    layers = [W4A16Linear(quantize_weight(rtn(m.weight, 4, 32), 4, 32)) for m in linears]
    assert r.decode_step(model, 4, 32).weights == 2 * rest + sum(map(stored_bytes, layers))


# ---- mixtures of experts ------------------------------------------------------------------------


def test_batches_wake_experts():
    """Mixtral in 4 bits: 16 tokens wake 7.9 of 8 experts a layer, which one token's step hid."""
    m = MODELS["mixtral-8x7b"]
    step = r.decode(m, 512, W4)
    per_layer = 3 * 4096 * 14336 * W4.per_value / 8
    assert step.expert == 32 * per_layer and (step.routed, step.used) == (8, 2)
    active = m.matrices(active=True) * W4.per_value / 8
    rest = 2 * (65 * 4096 + m.embedding)  # norms and lm_head in 16 bits
    assert r.weights_read(step, 1) == pytest.approx(float(active + rest))
    assert r.woken(8, 2, 16) == pytest.approx(7.92, abs=0.005)
    whole = float(m.matrices() * W4.per_value / 8 + rest)
    assert 0.98 < r.weights_read(step, 16) / whole < 1
    assert r.weights_read(step, 1000) == pytest.approx(whole)
    assert r.weights_read(r.prefill(m, 512, W4)) == pytest.approx(whole)  # a prompt wakes all


def test_woken_is_what_lab_13_counts():
    for count, k in ((8, 2), (256, 8), (4, 4), (1, 1)):
        for batch in (0, 1, 2, 16, 1000):
            assert r.woken(count, k, batch) == pytest.approx(traffic.woken(count, k, batch))


def test_biases_of_experts_wake_with_them():
    """gpt-oss: all experts awake, every parameter but the token table is read, in 16 bits."""
    m = MODELS["gpt-oss-20b"]
    step = r.decode(m, 1)
    assert r.weights_read(step, 10_000) == pytest.approx(2 * (m.parameters() - m.embedding))
    assert r.weights_read(step, 1) == pytest.approx(
        2 * (m.parameters(active=True) - m.embedding), rel=1e-12
    )


def test_layers_that_differ_read_their_own_windows():
    m = MODELS["gemma-3-27b"]
    assert r.decode(m, 10_000).kv == (52 * 1024 + 10 * 10_000) * 2 * 16 * 128 * 2
    scout = MODELS["llama-4-scout"]  # a new chunk begins at token 8193
    grown = [r.decode(scout, t).kv for t in (8192, 8193)]
    assert grown == [48 * 8192 * 4096, (12 * 8193 + 36) * 4096]


# ---- prefill and requests, from shapes alone ---------------------------------------------------


@pytest.mark.parametrize("tokens", [0, 512])
def test_a_decoder_has_the_step_of_the_model(tokens):
    """Of Llama-2-7B, and of one with grouped heads and one table."""
    grouped = LlamaConfig(100, 64, 96, 2, 8, 2, 8, tie_word_embeddings=True)
    with torch.device("meta"):
        models = (llama_2_7b(), Llama(grouped))
    for model in models:
        m = decoder(model.config)
        assert r.decode(m, tokens) == r.decode_step(model, tokens=tokens)
    assert r.decode(decoder(models[0].config), tokens, W4) == r.decode_step(
        models[0], 4, 128, tokens
    )
    assert decoder(models[0].config) == MODELS["llama-2-7b"]


def test_prefill_is_all_its_tokens_fed_one_by_one_but_for_lm_head():
    m = Decoder(2, 64, 8, 2, 8, 96, 100)
    one_by_one = [r.decode(m, i).flops for i in range(1, 11)]  # token i sees i keys
    logits = 2 * (m.hidden + m.embedding)
    assert r.prefill(m, 10).flops == sum(one_by_one) - 9 * logits
    assert (
        r.prefill(m, 10).kv == r.decode(m, 10).kv
        and r.prefill(m, 10).weights == r.decode(m, 0).weights
    )


def test_a_window_bounds_what_is_attended_to():
    full, narrow = (Decoder(2, 64, 8, 2, 8, 96, 100, window=w) for w in (None, 4))
    assert r.decode(narrow, 10) == r.decode(full, 4)
    pairs = sum(min(i, 4) for i in range(1, 11))
    difference = r.prefill(full, 10).flops - r.prefill(narrow, 10).flops
    assert difference == (55 - pairs) * 4 * 2 * 8 * 8  # layers, heads, d


def test_a_latent_computes_more_when_decoding_and_reads_less():
    latent = Latent(rank=16, rope=4, nope=8, value=8, query_rank=None)
    m = Decoder(2, 64, 8, 8, 8, 96, 100, latent=latent)
    assert r.pair_flops(m, decoding=True) == 2 * 2 * 8 * (2 * 16 + 4)
    assert r.pair_flops(m, decoding=False) == 2 * 2 * 8 * (8 + 4 + 8)
    assert r.decode(m, 100).kv == 2 * 2 * 100 * (16 + 4)


def test_latency_is_the_sum_of_its_steps():
    m, machine = MODELS["llama-3.1-8b"], r.RTX_4090
    cache = Format(4, 32)
    found = r.latency(m, machine, 1000, 5, batch=3, weights=W4, cache=cache)
    steps = [r.decode(m, 1000 + i, W4, cache) for i in (1, 2, 3, 4)]
    rest = sum(r.step_seconds(step, machine, 3) for step in steps)
    first = r.step_seconds(r.prefill(m, 1000, W4, cache), machine, 3)
    assert found.ttft == first and found.tpot == pytest.approx(rest / 4)
    assert found.total == pytest.approx(found.ttft + 4 * found.tpot)
    assert r.latency(m, machine, 1000, 1) == (found_alone := r.latency(m, machine, 1000, 1))
    assert found_alone.tpot == 0 and found_alone.total == found_alone.ttft


def test_prefill_is_bound_by_computing_and_decoding_by_bytes():
    m, machine = MODELS["llama-2-7b"], r.RTX_4090
    whole, step = r.prefill(m, 2048), r.decode(m, 2048)
    assert whole.flops / machine.peak > 10 * (whole.weights + whole.kv) / machine.bandwidth
    assert step.flops / machine.peak < 0.1 * (step.weights + step.kv) / machine.bandwidth


def test_requests_that_make_nothing_are_refused():
    with pytest.raises(ValueError, match="new=0 must be"):
        r.latency(MODELS["llama-2-7b"], r.RTX_4090, 10, 0)
    with pytest.raises(ValueError, match="tokens=0 must be"):
        r.prefill(MODELS["llama-2-7b"], 0)
