"""Quantizing a model: which weights change, into what, and that nothing else does."""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from efflib.quantization.kmeans import dequantize_kmeans_weight, kmeans_quantize_weight
from efflib.quantization.linear import fake_quantize_weight
from efflib.quantization.ptq import quantize_model
from efflib.quantization.size import model_bits


class Small(nn.Module):
    def __init__(self, tied=False):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(12, 8)
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8, bias=False)])
        self.norm = nn.LayerNorm(8)
        self.lm_head = nn.Linear(8, 12, bias=False)
        if tied:
            self.lm_head.weight = self.embedding.weight

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.lm_head(self.norm(x))


def changed(model, quantized):
    old = dict(model.named_parameters(remove_duplicate=False))
    new = dict(quantized.named_parameters(remove_duplicate=False))
    assert old.keys() == new.keys()
    return {name for name in old if not torch.equal(old[name], new[name])}


LAYERS = {"layers.0.weight", "layers.1.weight"}


@pytest.mark.parametrize("method, symmetric", [("linear", False), ("linear", True), ("kmeans", 0)])
@pytest.mark.parametrize("granularity", ["tensor", "channel", 3])
def test_linears_get_the_quantized_values_and_nothing_else_changes(method, symmetric, granularity):
    model = Small()
    before = {name: p.clone() for name, p in model.named_parameters()}
    quantized, bits = quantize_model(model, 3, granularity, bool(symmetric), method)
    assert changed(model, quantized) == LAYERS
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    for old, new in zip(model.layers, quantized.layers, strict=True):
        if method == "linear":
            expected = fake_quantize_weight(old.weight, 3, granularity, bool(symmetric))
        else:
            expected = dequantize_kmeans_weight(kmeans_quantize_weight(old.weight, 3, granularity))
        assert torch.equal(new.weight, expected)
        assert new.weight.requires_grad and new.weight.is_leaf
    assert bits == model_bits(model, 3, granularity, bool(symmetric), method)
    assert isinstance(bits, int)


def test_the_copy_shares_no_memory_with_the_original():
    model = Small()
    quantized, _ = quantize_model(model, 4, "channel")
    theirs = {p.data_ptr() for p in model.parameters()}
    assert theirs.isdisjoint(p.data_ptr() for p in quantized.parameters())


def test_skip_decides_about_the_output_layer():
    model = Small()
    assert changed(model, quantize_model(model, 2, "channel", skip=())[0]) == LAYERS | {
        "lm_head.weight"
    }
    only = quantize_model(model, 2, "channel", skip=("lm_head", "layers.0"))[0]
    assert changed(model, only) == {"layers.1.weight"}


@pytest.mark.parametrize("skip", [(), ("lm_head",)])
def test_a_head_tied_to_the_embedding_stays_and_stays_tied(skip):
    model = Small(tied=True)
    quantized, _ = quantize_model(model, 2, "channel", skip=skip)
    assert changed(model, quantized) == LAYERS
    assert quantized.lm_head.weight is quantized.embedding.weight
    assert quantized.lm_head.weight is not model.lm_head.weight


def test_linears_with_one_weight_are_quantized_once_and_stay_tied():
    model = Small()
    model.layers[1].weight = model.layers[0].weight
    quantized, _ = quantize_model(model, 4, "tensor", method="kmeans")
    assert quantized.layers[0].weight is quantized.layers[1].weight
    once = dequantize_kmeans_weight(kmeans_quantize_weight(model.layers[0].weight, 4))
    twice = dequantize_kmeans_weight(kmeans_quantize_weight(once, 4))
    assert not torch.equal(once, twice)  # so quantizing twice would show
    assert torch.equal(quantized.layers[0].weight, once)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_keep_their_dtype(dtype):
    model = Small().to(dtype)
    quantized, _ = quantize_model(model, 4, "channel")
    assert all(p.dtype == dtype for p in quantized.parameters())
    expected = fake_quantize_weight(model.layers[0].weight, 4, "channel").to(dtype)
    assert torch.equal(quantized.layers[0].weight, expected)


def test_mode_and_grad_flags_are_kept():
    model = Small().eval()
    model.layers[0].weight.requires_grad_(False)
    quantized, _ = quantize_model(model, 4, "channel")
    assert not quantized.training and not quantized.layers[0].weight.requires_grad


def test_eight_bits_hardly_move_the_output_and_two_bits_do():
    model, ids = Small(), torch.arange(12)
    with torch.no_grad():
        logits = model(ids)
        error = {
            bits: (quantize_model(model, bits, "channel")[0](ids) - logits).norm() / logits.norm()
            for bits in (8, 2)
        }
    assert 0 < error[8] < error[2] / 10  # the step is 85 times as large at 2 bits


def test_a_model_without_linears_is_an_error():
    with pytest.raises(ValueError, match="no nn.Linear to quantize in Sequential"):
        quantize_model(nn.Sequential(nn.Embedding(3, 4), nn.Conv1d(4, 4, 1)), 4, "channel")
    with pytest.raises(ValueError, match="skip="):
        quantize_model(nn.Sequential(nn.Linear(2, 2)), 4, "channel", skip=("0",))


@pytest.mark.parametrize("kwargs", [{"bits": 9}, {"granularity": 0}, {"method": "gptq"}])
def test_bad_arguments_are_errors(kwargs):
    with pytest.raises(ValueError, match="got"):
        quantize_model(Small(), **{"bits": 4, "granularity": "channel"} | kwargs)


@pytest.mark.parametrize("tied", [False, True])
def test_a_hugging_face_model(tied):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config)
    quantized, bits = quantize_model(model, 4, 8, skip=())
    layers = {name for name in changed(model, quantized) if "_proj" in name}
    assert len(layers) == 2 * 7
    assert changed(model, quantized) - layers == (set() if tied else {"lm_head.weight"})
    projections = 2 * (4 * 16 * 16 + 3 * 16 * 24)
    linear = projections if tied else projections + 32 * 16
    left = 32 * 16 + 5 * 16  # embedding, norms
    assert bits == linear * 4 + linear // 8 * 20 + left * 16
    assert torch.isfinite(quantized(torch.arange(6).unsqueeze(0)).logits).all()
