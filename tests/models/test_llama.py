"""The Llama against transformers' own, and cached decoding against recomputation."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.models import KVCache, Llama, LlamaConfig, from_pretrained, save_pretrained
from efflib.models.llama import causal_mask
from efflib.models.rotary import RopeScaling, rotate

SHAPE = dict(
    vocab_size=61,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=3,
    num_attention_heads=4,
    head_dim=8,
    max_position_embeddings=64,
)
TINY = LlamaConfig(num_key_value_heads=2, attention_bias=True, mlp_bias=True, **SHAPE)
# Of logits in float32: 2^-24 of hidden states of up to 8, some hundred times through three layers,
# 1e-6 to 1e-5.  Another epsilon (1e-5 for 1e-6) moves them by 1e-3, theta by 1 % more by 8e-3.
FP32 = 1e-4


def tiny(seed: int = 0, config: LlamaConfig = TINY) -> Llama:
    """A model whose every parameter, biases and norms too, is random and of order 1."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)  # the biases that noise is added to
    model = Llama(config).eval()
    for p in model.parameters():
        fan = p.shape[-1] if p.ndim == 2 else 1
        noise = torch.randn(p.shape, generator=generator) / fan**0.5
        p.data = noise if p.ndim == 2 else p.data + 0.3 * noise
    return model


def ids_of(seed: int, batch: int, length: int) -> torch.Tensor:
    return torch.randint(61, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("act", ["silu", "relu"])
def test_logits_equal_transformers(tmp_path, kv_heads, bias, tied, act):
    from transformers import LlamaForCausalLM

    config = LlamaConfig(
        num_key_value_heads=kv_heads,
        attention_bias=bias,
        mlp_bias=bias,
        tie_word_embeddings=tied,
        rope_theta=500.0,
        hidden_act=act,
        **SHAPE,
    )
    ours = tiny(1, config)
    save_pretrained(ours, tmp_path)
    theirs, info = LlamaForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True, attn_implementation="eager"
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    ids = ids_of(2, 3, 33)
    with torch.no_grad():
        expected, actual = theirs.double()(ids).logits, ours.double()(ids)
    # transformers computes angles, norms and softmax in fp32 also in a double model
    torch.testing.assert_close(actual, expected, rtol=0, atol=FP32)


def test_logits_in_fp32_equal_transformers(tmp_path):
    from transformers import LlamaForCausalLM

    ours = tiny(17)
    save_pretrained(ours, tmp_path)
    theirs, ids = LlamaForCausalLM.from_pretrained(tmp_path), ids_of(18, 2, 40)
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=0, atol=FP32)


def test_reads_a_checkpoint_written_by_transformers(tmp_path):
    from transformers import LlamaConfig as TheirConfig
    from transformers import LlamaForCausalLM

    torch.manual_seed(3)
    config = TheirConfig(num_key_value_heads=2, rope_theta=700.0, initializer_range=0.3, **SHAPE)
    theirs = LlamaForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path)
    ours = from_pretrained(tmp_path)
    assert ours.config.rope_theta == 700.0
    ids = ids_of(4, 2, 20)
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=0, atol=FP32)


LLAMA_3_1 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def test_the_positions_of_llama_3_1_equal_transformers(tmp_path):
    """Some pairs as they were, some slowed down wholly, some in between; and our own export."""
    from transformers import LlamaConfig as TheirConfig
    from transformers import LlamaForCausalLM

    torch.manual_seed(3)
    shape = SHAPE | {"head_dim": 16, "max_position_embeddings": 512}
    rope = {"rope_type": "llama3", **LLAMA_3_1, "original_max_position_embeddings": 64}
    config = TheirConfig(
        num_key_value_heads=2,
        rope_parameters=rope | {"rope_theta": 500.0},
        initializer_range=0.3,
        **shape,
    )
    theirs = LlamaForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    ours, ids = from_pretrained(tmp_path / "theirs"), ids_of(4, 2, 96)
    per_turn = 2 * math.pi * 500 ** (torch.arange(0, 16, 2) / 16)  # tokens
    assert (per_turn < 64 / 4).any() and (per_turn > 64).any()
    assert ((per_turn > 64 / 4) & (per_turn < 64)).any()
    save_pretrained(ours, tmp_path / "ours")
    again = LlamaForCausalLM.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        expected, actual = theirs(ids).logits, ours(ids)
        torch.testing.assert_close(actual, expected, rtol=0, atol=FP32)
        assert torch.equal(again(ids).logits, expected)
        plain = Llama(dataclasses.replace(ours.config, rope_scaling=None)).eval()
        plain.load_state_dict(ours.state_dict())
        assert (plain(ids) - actual).abs().max() > 100 * FP32
    assert from_pretrained(tmp_path / "ours").config == ours.config


def test_a_config_as_llama_3_1_ships_it_loads():
    raw = {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            **LLAMA_3_1,
            "original_max_position_embeddings": 8192,
        },
    }
    config = LlamaConfig.from_dict(raw)
    assert config.rope_scaling == RopeScaling(8.0, 1.0, 4.0, 8192) and config.head_dim == 128
    assert LlamaConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ValueError, match="high frequency"):
        RopeScaling(8.0, 4.0, 1.0, 8192)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_save_and_load_keep_every_weight(tmp_path, dtype):
    model = tiny(5)
    save_pretrained(model, tmp_path, dtype)
    loaded = from_pretrained(tmp_path)
    assert loaded.config == model.config and not loaded.training
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight.to(dtype).float()), name


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 2**31))
def test_cached_decoding_equals_recomputing(chunks, seed):
    model, ids = tiny(6).double(), ids_of(seed, 2, sum(chunks))
    cache, parts = KVCache(), []
    with torch.no_grad():
        for part in ids.split(chunks, dim=1):
            parts.append(model(part, cache=cache))
        whole = model(ids)
    assert cache.length == ids.shape[1]
    # Sums of some 40 doubles of order 1, three layers: a few hundred roundings of 1e-16.
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-11)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 12), st.integers(0, 11))
def test_a_truncated_cache_is_the_cache_of_the_prefix(length, keep):
    keep = min(keep, length)
    model, ids, rest = tiny(7).double(), ids_of(8, 1, length), ids_of(9, 1, 3)
    cache, prefix = KVCache(), KVCache()
    with torch.no_grad():
        model(ids, cache=cache)
        cache.truncate(keep)
        if keep:
            model(ids[:, :keep], cache=prefix)
        torch.testing.assert_close(
            model(rest, cache=cache), model(rest, cache=prefix), rtol=0, atol=1e-11
        )


def test_causality_logits_do_not_see_later_tokens():
    model, ids = tiny(10), ids_of(11, 1, 16)
    changed = ids.clone()
    changed[:, 9:] = (changed[:, 9:] + 1) % 61
    with torch.no_grad():
        before, after = model(ids), model(changed)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.equal(before[:, 9:], after[:, 9:])


@given(st.integers(1, 8), st.integers(0, 8))
def test_causal_mask_is_the_definition(queries, past):
    mask = causal_mask(queries, queries + past)
    expected = [[j <= past + i for j in range(queries + past)] for i in range(queries)]
    assert mask.tolist() == expected


@settings(deadline=None)
@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 500))
def test_rotary_scores_depend_on_the_distance_only(a, b, shift):
    generator = torch.Generator().manual_seed(12)
    q, k = torch.randn(2, 1, 1, 1, 8, generator=generator, dtype=torch.float64)

    def score(i, j):
        turned = [rotate(x, torch.tensor([p]), 10000.0) for x, p in ((q, i), (k, j))]
        return (turned[0] * turned[1]).sum().item()

    # An angle of 1000 is known to 1000 * 2^-53 = 1e-13, and a score of eight products of order 1
    # moves by at most a few times that.
    assert abs(score(a, b) - score(a + shift, b + shift)) < 1e-11


def test_attention_is_pluggable_for_all_layers_and_for_one():
    calls = []

    def first_value(q, k, v, mask):
        calls.append((tuple(q.shape), tuple(k.shape), tuple(mask.shape)))
        return v[:, :1, :1].expand_as(q)

    model, ids = tiny(13), ids_of(14, 2, 5)
    plain = model(ids)
    model.model.layers[1].self_attn.attention = first_value
    assert not torch.allclose(model(ids), plain)
    assert calls == [((2, 4, 5, 8), (2, 2, 5, 8), (5, 5))]
    model.set_attention(first_value)
    model(ids)
    assert len(calls) == 4


def test_a_norm_bias_is_added_to_the_norm():
    model, ids = tiny(15), ids_of(16, 1, 6)
    norm = model.model.layers[0].input_layernorm
    x = model.model.embed_tokens(ids)
    plain = norm(x)
    norm.bias = torch.nn.Parameter(torch.arange(24.0))
    torch.testing.assert_close(norm(x), plain + torch.arange(24.0))
    assert "model.layers.0.input_layernorm.bias" in model.state_dict()


def test_errors_name_the_bad_value(tmp_path):
    with pytest.raises(ValueError, match=r"\(3,\)"):
        tiny()(torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="num_attention_heads=4.*num_key_value_heads=3"):
        LlamaConfig(num_key_value_heads=3, **SHAPE)
    with pytest.raises(ValueError, match="hidden_act='gelu'.*'relu', 'silu'"):
        LlamaConfig.from_dict({**TINY.to_dict(), "hidden_act": "gelu"})
    with pytest.raises(ValueError, match="'yarn'.*'llama3'"):
        LlamaConfig.from_dict({**TINY.to_dict(), "rope_scaling": {"rope_type": "yarn"}})
    with pytest.raises(ValueError, match="lacks factor, low_freq_factor"):
        LlamaConfig.from_dict({**TINY.to_dict(), "rope_scaling": {"rope_type": "llama3"}})
    with pytest.raises(ValueError, match="num_key_value_heads=0 must be an integer of at least 1"):
        LlamaConfig(num_key_value_heads=0, **SHAPE)
    with pytest.raises(ValueError, match="rope_theta > 0"):
        dataclasses.replace(TINY, rope_theta=0.0)
    with pytest.raises(ValueError, match="the config lacks hidden_size, intermediate_size"):
        LlamaConfig.from_dict({"vocab_size": 3})
    ids = ids_of(1, 2, 5)
    with pytest.raises(ValueError, match="ids must be integers, got torch.float32"):
        tiny()(ids.float())
    with pytest.raises(ValueError, match=f"ids must be from 0 to {TINY.vocab_size - 1}, got"):
        tiny()(ids + TINY.vocab_size)
    with pytest.raises(ValueError, match=r"positions \(3,\) must be \[T\] or \[B, T\]"):
        tiny()(ids, positions=torch.arange(3))
    with pytest.raises(ValueError, match="mask must be bool.*got torch.float32"):
        tiny()(ids, mask=torch.ones(5, 5))
    with pytest.raises(ValueError, match="even d=3"):
        rotate(torch.zeros(1, 1, 2, 3), torch.arange(2), 100.0)
    with pytest.raises(FileNotFoundError, match="config.json"):
        from_pretrained(tmp_path)
    save_pretrained(tiny(), tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ValueError, match="model.safetensors"):
        from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json is not JSON"):
        from_pretrained(tmp_path)
