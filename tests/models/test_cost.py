"""FLOPs and bytes of a pass: counted by torch on a model, the lecture's layer, the roofline's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from efflib.models import cost as c
from efflib.models.cache import KVCache
from efflib.models.llama import Llama, LlamaConfig
from efflib.serving import roofline
from efflib.serving.decoder import MODELS, decoder

whole = st.integers(1, 60)
sizes = st.builds(
    lambda layers, hidden, kv, group, d, inner, vocab, gated, tied: c.Shapes(
        layers, hidden, kv * group, kv, d, inner, vocab, gated, tied
    ),
    *[st.integers(1, 9)] * 7,
    st.booleans(),
    st.booleans(),
)


def naive(q, k, v, mask):
    """Attention as two products of all queries with all keys, which torch's counter sees."""
    heads = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(heads, 1), v.repeat_interleave(heads, 1)
    scores = (q @ k.mT).masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize(("new", "cached", "batch"), [(1, 7, 3), (5, 0, 1), (4, 3, 2)])
def test_flops_are_what_torch_counts(new, cached, batch):
    config = LlamaConfig(50, 24, 40, 3, 4, 2, 8)
    model, cache = Llama(config), KVCache()
    model.set_attention(naive)
    with torch.no_grad():
        if cached:
            model.hidden(torch.zeros(batch, cached, dtype=torch.long), cache)
        with FlopCounterMode(display=False) as counter:
            hidden = model.hidden(torch.zeros(batch, new, dtype=torch.long), cache)
            model.lm_head(hidden[:, -1])
    parts = c.step_cost(config, new, cached, batch)
    # the products compute pairs above the diagonal as well
    square = 4 * 3 * batch * 4 * 8 * new * (cached + new)
    found = counter.get_total_flops()
    assert found == parts["matrices"].flops + parts["lm_head"].flops + square
    assert parts["attention"].flops == square * c.pairs(new, cached) // (new * (cached + new))


def test_weights_and_cache_are_what_a_model_holds():
    config = LlamaConfig(50, 24, 40, 3, 4, 2, 8)
    model, cache = Llama(config).half(), KVCache()
    with torch.no_grad():
        model(torch.zeros(2, 9, dtype=torch.long), cache=cache)
    part = c.total(c.step_cost(config, new=4, cached=5, batch=2))
    linears = [m.weight for m in model.modules() if isinstance(m, torch.nn.Linear)]
    assert part.weights == sum(w.nbytes for w in linears)
    assert part.cache == sum(x.nbytes for x in [*cache.keys, *cache.values])
    assert c.shapes(config).parameters == sum(p.numel() for p in model.parameters())


@given(st.integers(1, 4000), st.integers(1, 4000))
def test_the_lectures_layer(d, length):
    """12 d^2 + 2 L d for a token and 12 L d^2 + L^2 d + L d for a prompt, in products."""
    layer = c.Shapes(1, d, 1, 1, d, 4 * d, 1, gated=False)
    assert layer.layer_weights == 12 * d**2

    def products(new, cached):
        return sum(part.flops for part in c.layer_cost(layer, new, cached).values()) // 2

    assert products(1, length - 1) == 12 * d**2 + 2 * length * d
    assert products(length, 0) == 12 * length * d**2 + length**2 * d + length * d


@given(sizes, whole, st.integers(0, 60), whole)
def test_a_pass_is_its_tokens_one_by_one(shapes, new, cached, batch):
    whole_pass = c.step_cost(shapes, new, cached, batch)
    steps = [c.step_cost(shapes, 1, cached + i, batch) for i in range(new)]
    for name in ("matrices", "attention"):
        assert whole_pass[name].flops == sum(step[name].flops for step in steps)
    assert whole_pass["lm_head"] == steps[0]["lm_head"]
    assert c.total(whole_pass).cache == c.total(steps[-1]).cache  # all that is there at the end


@given(sizes, whole, st.integers(0, 60), whole)
def test_weights_are_read_once_and_all_else_grows_with_the_batch(shapes, new, cached, batch):
    one, many = (c.total(c.step_cost(shapes, new, cached, b)) for b in (1, batch))
    assert many.weights == one.weights
    assert (many.flops, many.cache) == (batch * one.flops, batch * one.cache)


@given(sizes, st.integers(1, 32), st.integers(1, 32))
def test_bits_are_those_of_what_they_name(shapes, bits, kv_bits):
    here, half = c.step_cost(shapes, 2, 3, 1, bits, kv_bits), c.step_cost(shapes, 2, 3)
    assert c.total(here).weights == pytest.approx(c.total(half).weights * bits / 16)
    assert c.total(here).cache == pytest.approx(c.total(half).cache * kv_bits / 16)


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3.1-70b", "llama-2-70b-mha"])
def test_the_roofline_counts_the_same_and_norms_besides(name):
    m, tokens = MODELS[name], 513
    norms = (2 * m.layers + 1) * m.hidden
    reads, step = roofline.prefill(m, tokens), roofline.decode(m, tokens)
    prefill, one = c.prefill_cost(m, tokens), c.decode_cost(m, tokens - 1)
    last_norm = 2 * m.hidden  # of the last token alone
    inside = 2 * (norms - m.hidden)
    assert reads.flops == prefill.flops + tokens * inside + last_norm
    assert step.flops == one.flops + 2 * norms
    assert step.weights == reads.weights == one.weights + 2 * norms
    assert step.kv == one.cache == prefill.cache


@pytest.mark.parametrize(
    "name", [n for n, m in MODELS.items() if not (m.latent or m.experts or m.window)]
)
def test_sources_agree(name):
    m = MODELS[name]
    found = c.shapes(m)
    raw = {theirs: getattr(m, ours) for ours, theirs in c.NAMES.items()}
    raw["tie_word_embeddings"] = m.tied
    assert c.shapes(raw) == found == c.shapes(found)
    assert c.shapes(LlamaConfig.from_dict({**raw, "model_type": "llama"})) == found
    biases = m.layers * (m.heads + 2 * m.kv_heads) * m.head_dim * m.bias
    assert found.parameters == m.parameters() - biases


def test_what_a_config_does_not_say():
    raw = {"hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2}
    raw |= {"intermediate_size": 96, "vocab_size": 100}
    found = c.shapes(raw)
    assert (found.kv_heads, found.head_dim, found.gated, found.tied) == (8, 8, True, False)
    assert not c.shapes({**raw, "gated_mlp": False}).gated
    assert c.shapes({**raw, "tie_word_embeddings": True}).tied
    assert c.shapes(decoder({**raw, "model_type": "llama"})) == found


def test_half_of_the_work_is_attention_where_the_docstring_says():
    m = c.shapes(MODELS["llama-2-7b"])
    keys = m.layer_weights // (2 * m.heads * m.head_dim)
    assert c.attention_share(m, 1, keys - 1) == pytest.approx(0.5, abs=1e-4)
    assert c.attention_share(m, 2 * keys - 1) == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"new": 0}, "new=0"),
        ({"cached": -1}, "cached=-1"),
        ({"batch": 0}, "batch=0"),
        ({"bits": 0}, "bits=0"),
        ({"kv_bits": float("nan")}, "kv_bits=nan"),
    ],
)
def test_bad_arguments_are_named(change, said):
    with pytest.raises(ValueError, match=said):
        c.step_cost(MODELS["llama-2-7b"], **({"new": 1} | change))


def test_what_is_not_counted_is_refused():
    for name, what in (
        ("mixtral-8x7b", "experts"),
        ("deepseek-v3", "latent"),
        ("mistral-7b", "window"),
    ):
        with pytest.raises(ValueError, match=f"{what} is not counted here"):
            c.shapes(MODELS[name])
    raw = {theirs: 8 for theirs in c.NAMES.values()} | {"sliding_window": 4}
    with pytest.raises(ValueError, match="sliding_window is not counted"):
        c.shapes(raw)
    assert c.shapes({**raw, "use_sliding_window": False}).hidden == 8
    with pytest.raises(ValueError, match="lacks intermediate_size, vocab_size"):
        c.shapes({"hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2})
    with pytest.raises(ValueError, match="heads=6 must be a multiple"):
        c.Shapes(1, 8, 6, 4, 2, 8, 8)
