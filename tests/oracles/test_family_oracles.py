"""Each technique on each family of transformers, where make test takes a few; and peft on all.

The models are those of tests/models/families.py: random, of some 20 000 parameters.
"""

import copy
import warnings

import pytest
import torch
from families import CASES, NO_FOLD, WIDTH, expect_same_function, family, ids, logits, stored
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from efflib.attention.heads import with_kv_heads
from efflib.finetuning.lora import LoRALinear, add_lora
from efflib.models.experts import stored_experts
from efflib.models.gains import with_unit_gains
from efflib.models.groups import norm_groups
from efflib.models.hub import describe
from efflib.quantization.awq import ScaleSearch
from efflib.quantization.awq_model import awq, fold
from efflib.quantization.gptq import gptq_model
from efflib.quantization.linear import to_groups
from efflib.quantization.ptq import quantize_model
from efflib.quantization.smoothquant import channel_maxima, smooth
from efflib.sequential import block_linears
from efflib.sparsity.masks import sparsity
from efflib.sparsity.sparsegpt import prune_sparsegpt
from efflib.sparsity.wanda import prune_wanda

pytestmark = pytest.mark.oracle

FOLDED = [case for case in CASES if case not in NO_FOLD]


@pytest.mark.parametrize("case", FOLDED)
@pytest.mark.parametrize("bits", [3, 4])
def test_awq_on_every_family(case, bits):
    """Two channels 40 times as large in every norm: AWQ takes most of what rounding to 4 bits adds;
    at 3 bits more is left that no factor takes off."""
    s = torch.ones(WIDTH, dtype=torch.float64)
    s[3], s[20] = 1 / 40, 1 / 40
    model = fold(family(case), {g.name: ScaleSearch(s, 0.5, ()) for g in norm_groups(family(case))})
    expect_same_function(model, case)
    exact = logits(model)
    plain = (logits(quantize_model(model, bits, 16)[0]) - exact).square().mean()
    quantized = awq(model, ids(), bits, 16)
    assert (logits(quantized) - exact).square().mean() < plain / (2 if bits == 4 else 1)
    for name in (name for linears in block_linears(quantized) for name in linears):
        groups = to_groups(quantized.get_submodule(name).weight.float(), 16).flatten(0, 1)
        assert all(len(group.unique()) <= 2**bits for group in groups)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("pattern", [0.5, (2, 4)])
def test_pruning_on_every_family(case, pattern):
    """Repair (SparseGPT) leaves less error than masks alone (Wanda), and Wanda than magnitude."""
    model, exact = family(case), logits(family(case))
    inside = {name for linears in block_linears(model) for name in linears}
    error = {}
    for prune in (prune_wanda, prune_sparsegpt):
        pruned = prune(model, ids(), pattern)
        for name in inside:
            assert sparsity(pruned.get_submodule(name).weight) == pytest.approx(0.5, abs=0.02)
        error[prune] = (logits(pruned) - exact).square().mean()
    assert 0 < error[prune_sparsegpt] < error[prune_wanda]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("act_order", [False, True])
def test_gptq_on_every_family(case, act_order):
    """The text it was fitted to comes out better than after plain rounding."""
    model, exact = family(case), logits(family(case))
    rounded, _ = gptq_model(model, ids(), 3, 16, act_order=act_order)
    plain = quantize_model(model, 3, 16)[0]
    error = [(logits(m) - exact).square().mean() for m in (rounded, plain)]
    assert 0 < error[0] < error[1]


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_peft_s_update_is_equal_on_every_family(case):
    model = family(case)
    names = [n for b in describe(model).blocks for n in (b.query.linear, b.out, *b.downs)]
    ours = add_lora(model, 2, 6, tuple(names))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = LoraConfig(r=2, lora_alpha=6, target_modules=names, task_type="CAUSAL_LM")
        theirs = get_peft_model(copy.deepcopy(model), config).eval()
    generator = torch.Generator().manual_seed(1)
    for name, layer in ours.named_modules():
        if isinstance(layer, LoRALinear):
            layer.b.normal_(std=0.1, generator=generator)
            other = theirs.base_model.model.get_submodule(name)
            for mine, their in ((layer.a, other.lora_A), (layer.b, other.lora_B)):
                their["default"].weight.data = mine.clone()
    # peft keeps its update in float32 where it can; given ours, in float64
    assert (logits(ours) - logits(theirs)).abs().max() < 1e-5
    assert (logits(ours) - logits(model)).abs().max() > 0.01


CHANGES = {
    "smoothed": lambda m: smooth(m, channel_maxima(m, ids()), 0.5),
    "unit gains": with_unit_gains,  # unties
    "one key head": lambda m: with_kv_heads(m, 1),
}


@torch.no_grad()
@pytest.mark.parametrize("case", FOLDED)
@pytest.mark.parametrize("change", CHANGES)
def test_transformers_loads_what_was_changed(case, change, tmp_path):
    """save_pretrained, from_pretrained: the logits are those of the model that was saved."""
    if case == "gpt2" or (change == "one key head" and "opt" in case):
        pytest.skip("GPT-2's linears are not what its file holds; OPT has no fewer key heads")
    model = CHANGES[change](family(case))
    exact = logits(model)
    model = copy.deepcopy(model)
    stored_experts(model)
    model.save_pretrained(tmp_path)
    options = {"experts_implementation": "eager"} if case == "mixtral" else {}
    again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64, **options)
    assert type(again) is type(stored(case))
    # Gemma's factor of the embedding is made anew, from float64 where it was from float32
    assert (logits(again.eval()) - exact).abs().max() < (1e-5 if "gemma" in case else 1e-9)
