"""What efflib.quantization.exports writes is opened by other libraries, with the same values."""

import copy
import json

import bitsandbytes.functional as bnb
import pytest
import torch
from compressed_tensors.compressors import PackedQuantizationCompressor as Packed
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from families import family, ids, logits, stored
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, CompressedTensorsConfig

from efflib.finetuning.lora import LoRALinear, add_lora
from efflib.finetuning.peft_state import save_adapter
from efflib.models.hub import describe
from efflib.models.recorded import record
from efflib.quantization.awq_model import fold, quantized_weights, search_model, with_values
from efflib.quantization.export_nf4 import export_nf4
from efflib.quantization.exports import export
from efflib.quantization.gptq import gptq_weights
from efflib.quantization.linear import dequantize_weight, quantize_weight
from efflib.quantization.nf4 import nf4_model
from efflib.quantization.size import quantizable_linears

pytestmark = pytest.mark.oracle

# biases, tied weights, norms of heads, gains of 1 + w, linears that hold two or three
CASES = ["llama tied, biases", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "opt"]
GROUP = 16


def single(case):
    return copy.deepcopy(family(case)).float()


def codes(model, kind):
    """(the model whose other weights count, {linear: codes}) of AWQ, GPTQ or plain rounding."""
    if kind == "awq":
        calibration = record(model, ids())
        searches = search_model(model, calibration, 4, GROUP)
        model = fold(model, searches)
        return model, quantized_weights(model, calibration, searches, 4, GROUP, clip=True)
    if kind.startswith("gptq"):
        act = kind == "gptq act"
        options = {"act_order": True, "grids": "static"} if act else {"symmetric": True}
        return gptq_weights(model, ids(), 4, GROUP, **options)
    linears = quantizable_linears(model)
    return model, {n: quantize_weight(m.weight, 4, "channel", True) for n, m in linears.items()}


def opened(folder, **options):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["awq", "gptq", "gptq act", "rows"])
def test_transformers_opens_compressed_tensors(case, kind, tmp_path):
    model, weights = codes(single(case), kind)
    expected = with_values(model, weights) if kind in ("awq", "rows") else model
    export(model, weights, tmp_path, "compressed-tensors", torch.float32)
    stored_names = load_file(tmp_path / "model.safetensors")
    assert not {f"{name}.weight" for name in weights} & stored_names.keys()
    # transformers 5.23 keeps codes packed only where they have no zero points of their own
    dense = {"quantization_config": CompressedTensorsConfig(dequantize=True)}
    theirs = opened(tmp_path, **({} if kind in ("gptq", "rows") else dense))
    assert type(theirs) is type(stored(case))
    assert logits(theirs).sub(logits(expected)).abs().max() <= 1e-6 * logits(expected).abs().max()


@pytest.mark.parametrize("symmetric", [False, True])
def test_compressed_tensors_reads_our_codes_and_we_write_its_words(symmetric, tmp_path):
    """Both ways, word by word: their compressor of the values gives our tensors."""
    model = single("llama tied, biases")
    linears = quantizable_linears(model)
    weights = {n: quantize_weight(m.weight, 4, GROUP, symmetric) for n, m in linears.items()}
    export(model, weights, tmp_path, "compressed-tensors", torch.float32)
    written = load_file(tmp_path / "model.safetensors")
    args = QuantizationArgs(num_bits=4, symmetric=symmetric, strategy="group", group_size=GROUP)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    for name, qw in weights.items():
        values = dequantize_weight(qw)
        mine = {k.rpartition(".")[2]: v for k, v in written.items() if k.startswith(f"{name}.w")}
        assert torch.equal(Packed.decompress(mine, scheme)["weight"], values)
        state = {"weight": values, "weight_scale": qw.scale}
        if not symmetric:
            state["weight_zero_point"] = (qw.zero - 8).to(torch.int8)
        theirs = Packed.compress(state, scheme)
        assert torch.equal(theirs["weight_packed"], mine["weight_packed"])
        if not symmetric:
            assert torch.equal(theirs["weight_zero_point"], mine["weight_zero_point"])


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("double", [False, True])
def test_transformers_opens_nf4(case, double, tmp_path):
    """On a CPU bitsandbytes wants inputs in whole blocks of 64; what it multiplies with is ours."""
    model = copy.deepcopy(stored(case, wide=True)).float()
    export_nf4(model, tmp_path, double, torch.float32)
    theirs, ours = opened(tmp_path), nf4_model(model, double)
    for name in quantizable_linears(model):
        weight = theirs.get_submodule(name).weight
        values = bnb.dequantize_4bit(weight.data, weight.quant_state)
        assert torch.equal(values.float(), ours.get_submodule(name).weight_hat())
    # its product rounds to bfloat16 on some CPUs: no more than twice the error of ours in it
    exact, rounded = logits(ours), logits(copy.deepcopy(ours).bfloat16()).float()
    assert (logits(theirs) - exact).norm() <= 2 * (rounded - exact).norm()


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_peft_opens_adapters_of_every_layout(case, tmp_path):
    model = single(case)
    names = [n for b in describe(model).blocks for n in (b.query.linear, b.out, *b.downs)]
    ours = add_lora(model, 2, 4, tuple(names))
    generator = torch.Generator().manual_seed(0)
    for layer in ours.modules():
        if isinstance(layer, LoRALinear):
            layer.b.normal_(std=0.1, generator=generator)
    save_adapter(ours, tmp_path)
    theirs = PeftModel.from_pretrained(single(case), tmp_path).eval()
    assert logits(theirs).sub(logits(ours)).abs().max() <= 1e-5 * logits(ours).abs().max()


def test_the_config_names_what_stays_in_float(tmp_path):
    model, weights = codes(single("qwen2"), "awq")
    export(model, weights, tmp_path, "awq")
    config = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert config["modules_to_not_convert"] == ["lm_head"] and config["version"] == "gemm"
