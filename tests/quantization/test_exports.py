"""Files of quantized models, decoded by the rules of those who read them, written down here anew.

Opened by the libraries themselves: tests/oracles/test_export_oracles.py.
"""

import json

import pytest
import torch
from safetensors.torch import load_file

from efflib.models.llama import Llama, LlamaConfig
from efflib.models.mixture import Mixture, MixtureConfig
from efflib.quantization.export_nf4 import export_nf4
from efflib.quantization.exports import export
from efflib.quantization.gptq import dequantize_gptq, gptq_weights
from efflib.quantization.linear import dequantize_weight, quantize_weight
from efflib.quantization.nf4 import nf4_codebook
from efflib.quantization.packing import unpack_awq
from efflib.quantization.size import quantizable_linears

SIZES = dict(
    vocab_size=50,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
)
IDS = torch.randint(0, 50, (4, 16), generator=torch.Generator().manual_seed(1))


def model(**changes):
    torch.manual_seed(0)
    return Llama(LlamaConfig(**SIZES, **changes)).eval()


def rtn(llama, bits=4, group=16, symmetric=False):
    linears = quantizable_linears(llama)
    return {n: quantize_weight(m.weight, bits, group, symmetric) for n, m in linears.items()}


def read(folder):
    config = json.loads((folder / "config.json").read_text())
    return load_file(folder / "model.safetensors"), config["quantization_config"]


def fields(word: int, bits: int) -> list[int]:
    return [(word >> (bits * i)) & (2**bits - 1) for i in range(32 // bits)]


def decoded_gptq(tensors, name, quantization):
    """w[n, k] = scales[g, n] (code - zero), g = g_idx[k]; codes along K, zeros along N, and 1 is
    added to zeros unless the checkpoint says that it is of version 2."""
    bits = quantization["bits"]
    words, zeros = tensors[f"{name}.qweight"].tolist(), tensors[f"{name}.qzeros"].tolist()
    scales, index = tensors[f"{name}.scales"].float(), tensors[f"{name}.g_idx"]
    k, n = len(index), scales.shape[1]
    rows = [[fields(w, bits) for w in row] for row in words]
    codes = [[rows[i * bits // 32][j][i % (32 // bits)] for i in range(k)] for j in range(n)]
    zero = torch.tensor([[z for w in row for z in fields(w, bits)] for row in zeros])  # [G, N]
    zero = zero + (quantization["checkpoint_format"] == "gptq")
    return scales[index].T * (torch.tensor(codes) - zero[index].T)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("options", [{}, {"act_order": True}, {"symmetric": True}])
def test_gptq_files_hold_the_values(bits, options, tmp_path):
    rounded, weights = gptq_weights(model(), IDS, bits, 16, **options)
    export(rounded, weights, tmp_path, "gptq", torch.float32)
    tensors, quantization = read(tmp_path)
    assert quantization["desc_act"] == ("act_order" in options)
    assert quantization["sym"] == ("symmetric" in options)
    for name, w in weights.items():
        assert torch.equal(decoded_gptq(tensors, name, quantization), dequantize_gptq(w))


def test_a_zero_point_of_0_makes_it_version_2(tmp_path):
    llama = model()
    with torch.no_grad():
        llama.model.layers[0].self_attn.q_proj.weight.abs_()
    weights = rtn(llama)
    export(llama, weights, tmp_path, "gptq", torch.float32)
    tensors, quantization = read(tmp_path)
    assert quantization["checkpoint_format"] == "gptq_v2"
    for name, w in weights.items():
        assert torch.equal(decoded_gptq(tensors, name, quantization), dequantize_weight(w))


def test_awq_files_hold_the_values(tmp_path):
    llama = model(attention_bias=True, tie_word_embeddings=True)
    weights = rtn(llama)
    export(llama, weights, tmp_path, "awq")
    tensors, quantization = read(tmp_path)
    assert quantization["modules_to_not_convert"] == ["lm_head"]
    for name, w in weights.items():
        codes, zero = (unpack_awq(tensors[f"{name}.{p}"]).int() for p in ("qweight", "qzeros"))
        assert torch.equal(codes, w.codes.int()) and torch.equal(zero, w.zero)
        assert torch.equal(tensors[f"{name}.scales"], w.scale.half().T)
    bias = llama.model.layers[0].self_attn.q_proj.bias
    assert torch.equal(tensors["model.layers.0.self_attn.q_proj.bias"], bias.half())
    assert "lm_head.weight" not in tensors and "model.embed_tokens.weight" in tensors


@pytest.mark.parametrize("symmetric", [False, True])
def test_compressed_tensors_files_hold_the_values(symmetric, tmp_path):
    """w = scale (code - zero), both unsigned in their words; without zero points zero is 8."""
    llama = model()
    weights = rtn(llama, symmetric=symmetric)
    export(llama, weights, tmp_path, dtype=torch.float32)
    tensors, quantization = read(tmp_path)
    assert quantization["ignore"] == ["lm_head"] and quantization["format"] == "pack-quantized"
    for name, w in weights.items():
        words = tensors[f"{name}.weight_packed"].tolist()
        codes = torch.tensor([[c for word in row for c in fields(word, 4)] for row in words])
        zero = torch.full_like(w.zero, 8)
        if not symmetric:
            packed = tensors[f"{name}.weight_zero_point"].T.tolist()  # along N
            zero = torch.tensor([[z for x in row for z in fields(x, 4)] for row in packed]).T
        scale = tensors[f"{name}.weight_scale"]
        values = (codes - zero.repeat_interleave(16, 1)) * scale.repeat_interleave(16, 1)
        assert torch.equal(values, dequantize_weight(w))
        assert tensors[f"{name}.weight_shape"].tolist() == list(values.shape)


@pytest.mark.parametrize("double", [False, True])
def test_nf4_files_hold_the_codes(double, tmp_path):
    llama = model()
    export_nf4(llama, tmp_path, double)
    tensors, quantization = read(tmp_path)
    assert quantization["bnb_4bit_use_double_quant"] == double
    name = "model.layers.0.mlp.up_proj"
    text = bytes(tensors[f"{name}.weight.quant_state.bitsandbytes__nf4"].tolist())
    state = json.loads(text)
    assert state["shape"] == [48, 32] and ("nested_offset" in state) == double
    packed = tensors[f"{name}.weight"].flatten().int()
    codes = torch.stack([packed >> 4, packed & 15], 1).flatten().long()
    scales = tensors[f"{name}.weight.absmax"]
    if double:
        levels = tensors[f"{name}.weight.nested_quant_map"][scales.long()]
        scales = levels * tensors[f"{name}.weight.nested_absmax"] + state["nested_offset"]
    w = llama.get_submodule(name).weight.flatten()
    values = nf4_codebook()[codes] * scales.repeat_interleave(64)
    gaps = nf4_codebook().diff().max() / 2 * scales.repeat_interleave(64)
    assert ((values - w).abs() <= gaps * (1.2 if double else 1.0001)).all()


def test_what_no_format_holds_is_refused(tmp_path):
    llama = model()
    acted = gptq_weights(llama, IDS, 4, 16, act_order=True)[1]
    for form in ("awq", "compressed-tensors"):
        with pytest.raises(ValueError, match="has no place for g_idx"):
            export(llama, acted, tmp_path, form)
    for bits, group, form, why in (
        (3, 16, "gptq", "written with 4 bits"),
        (8, 16, "awq", "written with 4 bits"),
        (4, 20, "gptq", "whole groups"),
        (4, "tensor", "gptq", "grid for a whole tensor"),
        (4, 16, "gguf", "a known format"),
    ):
        with pytest.raises(ValueError, match=why):
            export(llama, rtn(llama, bits, group), tmp_path, form)
    mixed = rtn(llama) | {"model.layers.0.mlp.up_proj": rtn(llama, 8)["model.layers.0.mlp.up_proj"]}
    with pytest.raises(ValueError, match="one kind of codes"):
        export(llama, mixed, tmp_path)
    mixture = Mixture(MixtureConfig(**SIZES, num_local_experts=2))
    experts = {name: w for name, w in rtn(mixture).items() if "experts" in name}
    with pytest.raises(ValueError, match="a mixture of experts is not written"):
        export(mixture, experts, tmp_path)
    assert not list(tmp_path.iterdir())
