"""Norm groups of the models of transformers: smoothing them keeps every model's function."""

import pytest
import torch

from efflib.models.groups import norm_groups, with_linears
from efflib.quantization.smoothquant import channel_maxima, smooth, w8a8

VOCAB, WIDTH, LAYERS, HEADS = 50, 32, 2, 4
SIZES = dict(vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=LAYERS)


def llama(**changes):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = SIZES | dict(intermediate_size=48, num_attention_heads=HEADS, num_key_value_heads=2)
    return LlamaForCausalLM(LlamaConfig(**sizes, **changes))


def mistral():
    from transformers import MistralConfig, MistralForCausalLM

    sizes = SIZES | dict(intermediate_size=48, num_attention_heads=HEADS, num_key_value_heads=2)
    return MistralForCausalLM(MistralConfig(**sizes, sliding_window=8))


def opt(**changes):
    from transformers import OPTConfig, OPTForCausalLM

    return OPTForCausalLM(OPTConfig(**SIZES, ffn_dim=48, num_attention_heads=HEADS, **changes))


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCAB, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config)


# model and the number of linears that read each of the two norms of a layer
MODELS = {
    "llama": (llama, (3, 2)),
    "llama with biases": (lambda: llama(attention_bias=True, mlp_bias=True), (3, 2)),
    "mistral": (mistral, (3, 2)),
    "opt": (opt, (3, 1)),
    "opt without biases": (lambda: opt(enable_bias=False), (3, 1)),
    "gpt2": (lambda: with_linears(gpt2().eval()), (1, 1)),
}


def made(name):
    """The model with random gains and biases: all ones and zeros would hide a mistake."""
    torch.manual_seed(0)
    model = MODELS[name][0]().eval()
    with torch.no_grad():
        for parameter_name, p in model.named_parameters():
            if "norm" in parameter_name or "ln_" in parameter_name:
                p.copy_(torch.rand_like(p) + 0.5)
            elif parameter_name.endswith("bias"):
                p.copy_(torch.randn_like(p) * 0.1)
    return model, torch.randint(3, VOCAB, (2, 12))


@pytest.mark.parametrize("name", MODELS)
def test_every_norm_of_every_layer_is_found(name):
    model, _ = made(name)
    groups = norm_groups(model)
    assert [len(g.linears) for g in groups] == list(MODELS[name][1]) * LAYERS
    modules = dict(model.named_modules())
    for group in groups:
        assert modules[group.name] is group.norm
        assert all(modules[n] is m and m.in_features == WIDTH for n, m in group.linears.items())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.85])
def test_smoothing_keeps_the_logits(name, alpha):
    model, ids = made(name)
    maxima = channel_maxima(model, ids)
    smoothed = smooth(model, maxima, alpha)
    with torch.no_grad():
        exact, logits = model(ids).logits, smoothed(ids).logits
    assert (logits - exact).abs().max() <= 1e-5 * exact.abs().max().clamp(min=1)
    now = channel_maxima(smoothed, ids)
    moved = [n for n in now if (now[n] - maxima[n]).abs().max() > 1e-3]
    assert {n for g in norm_groups(model) for n in g.linears} == set(moved)


@pytest.mark.parametrize("name", ["gpt2", "opt", "mistral"])
def test_w8a8_after_smoothing_runs(name):
    model, ids = made(name)
    quantized = w8a8(smooth(model, channel_maxima(model, ids), 0.5), "token")
    with torch.no_grad():
        exact, logits = model(ids).logits, quantized(ids).logits
    assert 0 < (logits - exact).norm() / exact.norm() < 0.1


def test_conv1d_is_refused_and_replaced():
    torch.manual_seed(0)
    model, ids = gpt2().eval(), torch.randint(0, VOCAB, (2, 12))
    with pytest.raises(ValueError, match=r"attn.c_attn is a Conv1D.*call with_linears"):
        norm_groups(model)
    replaced = with_linears(model)
    with torch.no_grad():
        # x W + b by addmm, and the same by linear: only the order of float sums may differ
        torch.testing.assert_close(replaced(ids).logits, model(ids).logits, rtol=1e-5, atol=1e-5)
    assert not any(type(m).__name__ == "Conv1D" for m in replaced.modules())
    assert any(type(m).__name__ == "Conv1D" for m in model.modules())
    assert replaced.transformer.h[0].attn.c_attn.weight.shape == (3 * WIDTH, WIDTH)
    assert replaced.lm_head.weight is replaced.transformer.wte.weight
