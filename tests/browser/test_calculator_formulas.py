"""Every formula of the site's calculators against efflib's, over random inputs, in Chromium."""

import math
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from efflib.decoding.speculative import expected_tokens
from efflib.decoding.speed import best_gamma, speedup
from efflib.meter.roofline import GPUS
from efflib.models import cost, scaling
from efflib.quantization.gptq import INDEX_BITS
from efflib.quantization.nf4 import nf4_bits
from efflib.quantization.size import codebook_bits, weight_bits
from efflib.serving import energy, limits, memory, roofline
from efflib.serving.blocks import OutOfBlocks
from efflib.serving.decoder import MODELS, Decoder, from_config
from efflib.serving.families import FAMILIES, LATENT, NESTED
from efflib.serving.paged import PagedSequences
from efflib.sparsity.nm import compressed_bits

pytestmark = pytest.mark.browser

SCRIPTS = Path(__file__).parents[2] / "course" / "_static" / "calculators"
FORMULAS = (
    "decoder",
    "families",
    "memory",
    "roofline",
    "limits",
    "budget",
    "speculation",
    "formats",
)
FORMULAS += ("paged", "tables")
CASES = 300
CLOSE = 1e-12  # both sides add the same float64 numbers, in another order
FORMATS = [memory.Format(), memory.Format(8), memory.W4, memory.Format(2, 32), memory.Format(3, 7)]

FAULT = (
    "raw => { try { calc.families.fromConfig(raw); return ''; } catch (e) { return e.message } }"
)


LIMITS_FAULT = """raw => {
    try { calc.limits.layerWeights(calc.families.fromConfig(raw)); return ""; }
    catch (e) { return e.message } }"""


@pytest.fixture(scope="module")
def page():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        page = browser.new_page()
        for name in FORMULAS:
            page.add_script_tag(path=SCRIPTS / f"{name}.js")
        yield page
        browser.close()


def config(draw: random.Random) -> dict:
    """A config.json of a random family."""
    kv, group = draw.choice([1, 2, 4, 8]), draw.choice([1, 2, 7, 8])
    family = draw.choice(FAMILIES)
    raw = {
        "model_type": family,
        "num_hidden_layers": draw.randint(1, 90),
        "hidden_size": kv * group * draw.choice([16, 64, 80, 128]),
        "num_attention_heads": kv * group,
        "num_key_value_heads": kv,
        "intermediate_size": draw.randint(64, 30000),
        "vocab_size": draw.randint(100, 260000),
    }
    optional = {
        "head_dim": draw.choice([None, 64, 256]),
        "tie_word_embeddings": draw.choice([True, False]),
        "attention_bias": draw.choice([True, False]),
        "sliding_window": draw.choice([None, 128, 4096]),
        "use_sliding_window": draw.choice([True, False]),
    }
    raw |= {name: value for name, value in optional.items() if draw.random() < 0.5}
    raw |= {"num_local_experts": 8, "num_experts_per_tok": draw.randint(1, 8)}
    raw |= {"moe_intermediate_size": 512, "intermediate_size_mlp": draw.randint(64, 30000)}
    layers = raw["num_hidden_layers"]
    kinds = ["full_attention", "chunked_attention" if "llama4" in family else "sliding_attention"]
    where = {
        "layer_types": [draw.choice(kinds) for _ in range(layers)],
        "max_window_layers": draw.randint(0, layers),
        "sliding_window_pattern": draw.randint(1, 7),
        "attention_chunk_size": draw.choice([None, 128, 8192]),
        "no_rope_layers": [draw.randint(0, 1) for _ in range(layers)],
        "no_rope_layer_interval": draw.randint(1, 5),
        "num_experts": draw.choice([0, 16]),
        "decoder_sparse_step": draw.randint(1, 3),
        "mlp_only_layers": [draw.randrange(layers) for _ in range(3)],
        "interleave_moe_layer_step": draw.randint(1, 3),
        "moe_layers": draw.sample(range(layers), draw.randint(0, min(3, layers))),
    }
    raw |= {name: value for name, value in where.items() if draw.random() < 0.5}
    if family in NESTED:
        raw = {"text_config": raw, "model_type": family}
        raw |= {"tie_word_embeddings": True} if draw.random() < 0.5 else {}
    if family in LATENT:
        raw |= {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 96}
        raw |= {"v_head_dim": 128, "q_lora_rank": draw.choice([None, 1536])}
        raw |= {"n_routed_experts": draw.choice([0, 16]), "n_shared_experts": draw.randint(0, 2)}
        raw |= {"first_k_dense_replace": draw.randint(0, 3)}
    return raw


def plain() -> dict:
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads")
    return dict.fromkeys((*names, "intermediate_size", "vocab_size"), 64) | {"model_type": "llama"}


def shared(f: memory.Format) -> dict:
    """A format as the page writes it."""
    if f.group_size is None:
        return {"bits": f.bits, "group": 1, "metadata": 0}
    return {"bits": f.bits, "group": f.group_size, "metadata": f.metadata}


def models(seed: int) -> Iterator[tuple[random.Random, dict, Decoder]]:
    draw = random.Random(seed)
    for _ in range(CASES):
        raw = config(draw)
        yield draw, raw, from_config(raw)


def answers(page, function: str, arguments: list) -> list:
    return page.evaluate(f"all => all.map(({function}))", arguments)


def agree(found: list, wanted: list) -> None:
    assert len(found) == len(wanted) >= CASES
    for i, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert ours == pytest.approx(theirs, rel=CLOSE, abs=0), f"case {i}"


def test_memory(page):
    asked, wanted = [], []
    for draw, raw, m in models(1):
        w, c = draw.choice(FORMATS), draw.choice(FORMATS)
        tokens, batch = draw.randint(1, 200000), draw.randint(1, 500)
        size, reserve = draw.randint(1, 200) * memory.GiB, draw.randint(0, 90)
        asked.append([raw, tokens, batch, size, shared(w), shared(c), reserve])
        share = Fraction(reserve, 100)
        longest = memory.longest_context(m, size, batch, w, c, share)
        row = [m.parameters(), m.parameters(active=True), memory.weight_bytes(m, w)]
        row += [memory.kv_bytes(m, tokens, batch, c), memory.activation_bytes(m, tokens)]
        row += [memory.plan(m, size, tokens, w, c, share).batch, longest]
        row += [memory.devices_needed(m, size, tokens, batch, w, c, share)]
        row += [m.kept(tokens), m.seen(tokens), m.pairs(tokens)]
        wanted.append([float(x) for x in row])
    found = answers(
        page,
        """([raw, tokens, batch, size, w, c, reserve]) => {
            const [m, M] = [calc.families.fromConfig(raw), calc.memory];
            return [calc.decoder.parameters(m), calc.decoder.parameters(m, true),
                M.weightBytes(m, w), M.kvBytes(m, tokens, batch, c),
                M.activationBytes(m, tokens, 1), M.sequences(m, size, tokens, w, c, reserve),
                M.longestContext(m, size, batch, w, c, reserve),
                M.devicesNeeded(m, size, tokens, batch, w, c, reserve),
                calc.decoder.kept(m, tokens), calc.decoder.seen(m, tokens),
                calc.decoder.pairs(m, tokens)] }""",
        asked,
    )
    agree(found, wanted)
    for column in (5, 6, 7):  # floors and ceilings to the last one
        assert [row[column] for row in found] == [row[column] for row in wanted]
    assert len({row[5] for row in wanted}) > 20


def test_roofline(page):
    asked, wanted = [], []
    for draw, raw, m in models(2):
        w, c = draw.choice(FORMATS), draw.choice(FORMATS)
        machine = roofline.Machine(draw.uniform(1e11, 1e13), draw.uniform(1e13, 3e15))
        prompt, new, batch = draw.randint(1, 9000), draw.randint(1, 20), draw.randint(1, 300)
        asked.append([raw, machine._asdict(), prompt, new, batch, shared(w), shared(c)])
        step, first = roofline.decode(m, prompt, w, c), roofline.prefill(m, prompt, w, c)
        row = [*roofline.latency(m, machine, prompt, new, batch, w, c)]
        row += [roofline.tokens_per_second(step, machine, batch)]
        row += [roofline.weights_read(step, batch), roofline.weights_read(first, batch)]
        wanted.append([*row, roofline.ridge_batch(step, machine)])
    found = answers(
        page,
        """([raw, machine, prompt, fresh, batch, w, c]) => {
            const [m, R] = [calc.families.fromConfig(raw), calc.roofline];
            const times = R.latency(m, machine, prompt, fresh, batch, w, c);
            const step = R.decode(m, prompt, w, c);
            const first = R.prefill(m, prompt, w, c);
            return [times.ttft, times.tpot, times.total, R.tokensPerSecond(step, machine, batch),
                R.weightsRead(step, batch), R.weightsRead(first, batch),
                R.ridge(step, machine)] }""",
        asked,
    )
    ridges, wanted_ridges = [row.pop() for row in found], [row.pop() for row in wanted]
    agree(found, wanted)
    for ridge, other in zip(ridges, wanted_ridges, strict=True):
        # a difference of two times: relative to it nothing can be promised where they are close
        assert ridge == pytest.approx(other, rel=1e-6)
    assert {math.isinf(ridge) for ridge in ridges} == {True, False}


def test_limits(page):
    asked, wanted = [], []
    for draw, raw, m in models(6):
        if m.latent or m.experts or m.window:
            assert "not counted here" in page.evaluate(LIMITS_FAULT, raw)
            continue
        machine = roofline.Machine(draw.uniform(1e11, 1e13), draw.uniform(1e13, 3e15))
        new, cached, batch = draw.randint(1, 3000), draw.randint(0, 9000), draw.randint(1, 300)
        bits, kv_bits, made = draw.randint(1, 32), draw.randint(1, 32), draw.randint(1, 9)
        prices = energy.Prices(*(draw.random() for _ in range(3)))
        asked.append([raw, machine._asdict(), new, cached, batch, bits, kv_bits, made])
        asked[-1].append(prices._asdict())
        parts = cost.step_cost(m, new, cached, batch, bits, kv_bits)
        whole = cost.total(parts)
        row = [whole.flops, whole.moved, limits.intensity(whole.flops, whole.moved)]
        row += [limits.least_seconds(whole, machine)]
        row += [limits.seconds_in_turn(parts.values(), machine)]
        arguments = (machine, prices, batch, bits, kv_bits)
        row += [energy.sentence_joules(m, new, made, *arguments).sum]
        row += [limits.ridge_batch(m, cached, machine, bits, kv_bits)]
        wanted.append([*row, limits.ridge_context(m, machine, kv_bits)])
    found = answers(
        page,
        """([raw, machine, fresh, cached, batch, bits, kvBits, made, prices]) => {
            const [m, L] = [calc.families.fromConfig(raw), calc.limits];
            const all = L.parts(m, fresh, cached, batch, bits, kvBits);
            const whole = L.total(m, fresh, cached, batch, bits, kvBits);
            return [whole.flops, L.moved(whole), L.intensity(whole), L.seconds(whole, machine),
                L.inTurn(all, machine),
                L.joules(m, fresh, made, machine, prices, batch, bits, kvBits),
                L.ridgeBatch(m, cached, machine, bits, kvBits),
                L.ridgeContext(m, machine, kvBits)] }""",
        asked,
    )
    assert len(found) == len(wanted) > CASES / 4
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours[:6] == pytest.approx(theirs[:6], rel=CLOSE, abs=0)
        assert ours[6:] == pytest.approx(theirs[6:], rel=1e-6)  # differences of two numbers
    assert {math.isinf(row[6]) for row in found} == {True, False}


def test_budget(page):
    draw, asked, wanted = random.Random(7), [], []
    laws = {
        "Hoffmann et al., 2022": scaling.HOFFMANN,
        "Besiroglu et al., 2024": scaling.BESIROGLU,
    }
    shown = page.evaluate("calc.budget.LAWS")
    assert {name: scaling.Law(**law) for name, law in shown.items()} == laws
    for _ in range(CASES):
        compute, ratio = 10 ** draw.uniform(15, 28), 10 ** draw.uniform(-1, 4)
        used, name = 10 ** draw.uniform(0, 15), draw.choice(sorted(laws))
        asked.append([compute, ratio, used, name])
        rule, best = scaling.by_rule(compute, ratio), scaling.by_law(compute, laws[name])
        loss = laws[name].loss(*rule)
        row = [*rule, *best, loss, scaling.lifetime_flops(rule, used)]
        wanted.append([*row, scaling.tokens_for(loss, 2 * rule.parameters, laws[name])])
    found = answers(
        page,
        """([compute, ratio, used, name]) => {
            const [B, law] = [calc.budget, calc.budget.LAWS[name]];
            const rule = B.byRule(compute, ratio);
            const loss = B.loss(...rule, law);
            return [...rule, ...B.byLaw(compute, law), loss, B.lifetime(...rule, used),
                B.tokensFor(loss, 2 * rule[0], law)] }""",
        asked,
    )
    agree([row[:6] for row in found], [row[:6] for row in wanted])
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours[6] == pytest.approx(theirs[6], rel=1e-6)  # a difference of losses


def test_speculation(page):
    draw = random.Random(3)
    asked = [[draw.random(), draw.uniform(0, 1.5), draw.uniform(0, 0.3)] for _ in range(CASES)]
    asked += [[a, c, w] for a in (0, 1) for c in (0, 0.1, 1) for w in (0, 0.05)]
    lengths = [[*case, draw.randint(0, 40)] for case in asked]
    found = answers(
        page,
        """([a, c, w, g]) => [calc.speculation.expectedTokens(a, g),
            calc.speculation.speedup(a, g, c, w), calc.speculation.best(a, c, w)]""",
        lengths,
    )
    best = [row.pop() for row in found]
    agree(found, [[expected_tokens(a, g), speedup(a, g, c, w)] for a, c, w, g in lengths])
    for g, (a, c, w) in zip(best, asked, strict=True):  # of lengths that tie up to rounding, any
        assert speedup(a, g, c, w) == pytest.approx(
            speedup(a, best_gamma(a, c, w), c, w), rel=CLOSE
        )
    assert sum(g == best_gamma(*case) for g, case in zip(best, asked, strict=True)) >= CASES


def test_formats(page):
    draw = random.Random(4)
    asked, wanted = [], []
    for _ in range(CASES):
        shape, bits = (draw.randint(1, 5000), draw.randint(1, 5000)), draw.randint(2, 8)
        kind, symmetric = draw.choice(["tensor", "channel", 32, 128, 77]), draw.random() < 0.5
        asked.append([*shape, bits, kind, symmetric])
        row = [weight_bits(shape, bits, kind, symmetric), codebook_bits(shape, bits, kind)]
        row += [nf4_bits(shape, double=False), nf4_bits(shape)]
        row.append(row[0] + INDEX_BITS * shape[1])
        wanted.append([*row, None if shape[1] % 4 else compressed_bits(shape, bits)])
    found = answers(
        page,
        """([n, k, bits, kind, symmetric]) => [calc.formats.linear(n, k, bits, kind, symmetric),
            calc.formats.codebook(n, k, bits, kind), calc.formats.nf4(n, k, false),
            calc.formats.nf4(n, k, true), calc.formats.indexed(n, k, bits, kind, symmetric),
            calc.formats.twoOfFour(n, k, bits)]""",
        asked,
    )
    assert found == wanted


def walk(draw: random.Random, blocks: int, size: int) -> tuple[list, list]:
    """Random steps, and what efflib's memory looks like behind each of them."""
    kept, steps, states = PagedSequences(blocks, size), [], []
    for _ in range(40):
        what, name, other = draw.choice(["append"] * 3 + ["fork", "free"]), *draw.sample("ABCD", 2)
        step = [what, name, draw.randint(0, 7) if what == "append" else other]
        copies, failed = [], False
        try:
            copies = getattr(kept, what)(*(step[1:2] if what == "free" else step[1:]))
        except (OutOfBlocks, ValueError):
            failed = True
        tables = {n: [kept.table(n), kept.length(n)] for n in sorted(kept.names)}
        steps.append(step)
        states.append([failed, list(copies[0]) if copies else None, tables, kept.pool.queue])
    return steps, states


def test_paged_attention(page):
    draw = random.Random(5)
    cases = [(draw.randint(1, 12), draw.randint(1, 5)) for _ in range(CASES)]
    walks = [walk(draw, *case) for case in cases]
    asked = [[*case, steps] for case, (steps, _) in zip(cases, walks, strict=True)]
    found = answers(
        page,
        """([blocks, size, steps]) => {
            const kept = new calc.Paged(blocks, size);
            return steps.map(([what, name, more]) => {
                let [failed, copy] = [false, null];
                try { copy = kept[what](name, more) ?? null; }
                catch (error) { if (!(error instanceof calc.Fault)) throw error; failed = true; }
                const names = [...kept.tables.keys()].sort();
                const tables = names.map(n => [n, [[...kept.tables.get(n)], kept.lengths.get(n)]]);
                return [failed, copy, Object.fromEntries(tables), [...kept.queue]]; }) }""",
        asked,
    )
    assert found == [states for _, states in walks]
    every = [state for _, states in walks for state in states]
    assert any(failed for failed, *_ in every) and any(copy for _, copy, *_ in every)


def test_tables_are_efflib_s(page):
    models_here = page.evaluate("calc.tables.MODELS")
    assert {name: from_config(raw) for name, raw in models_here.items()} == {
        name: m
        for name, m in MODELS.items()
        if name != "llama-2-70b-mha"  # no such model
    }
    gpus = page.evaluate("calc.tables.GPUS")
    for name, row in gpus.items():
        assert row["memory"] * memory.GiB == memory.gpu_memory(name)
        assert (row["bandwidth"], row["peak"]) == (GPUS[name].bandwidth, GPUS[name].tensor["fp16"])
    assert set(gpus) == set(memory.GPU_MEMORY)
    formats = page.evaluate("calc.tables.FORMATS")
    assert formats["4 bits, groups of 128"] == shared(memory.W4)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "bert"}, "bert"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers"),
        ({"num_key_value_heads": 3}, "multiple of 3"),
        ({"head_dim": "64"}, "head_dim"),
        ({"mlp_bias": True}, "mlp_bias is not counted"),
        ({"model_type": "llama4"}, "the config lacks text_config"),
        ({"model_type": "qwen3_moe"}, "the config lacks num_local_experts"),
        ({"model_type": "phi3", "layer_types": ["mamba"] * 64}, '"mamba" are not known'),
        ({"model_type": "phi3", "layer_types": []}, "layer_types names 0 layers of 64"),
    ],
)
def test_a_bad_config_is_named(page, change, named):
    raw = {**plain(), **change}
    assert named in page.evaluate(FAULT, raw)


def test_config_needs_its_fields(page):
    assert page.evaluate(FAULT, {}) == "the config lacks hidden_size"


def test_decoders_have_no_field_that_the_page_does_not_know(page):
    raw = plain()
    assert len(page.evaluate("raw => calc.families.fromConfig(raw)", raw)) == len(
        asdict(from_config(raw))
    )
