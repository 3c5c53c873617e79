"""efflib.finetuning.lora against peft (make test-oracles)."""

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import get_peft_model_state_dict
from transformers import LlamaConfig, LlamaForCausalLM

from efflib.finetuning.lora import LoRALinear, add_lora, merge_lora, trainable_parameters
from efflib.finetuning.peft_state import adapter_state, load_adapter, save_adapter

pytestmark = pytest.mark.oracle

TARGETS = ("q_proj", "v_proj", "down_proj")
IDS = torch.arange(24).reshape(2, 12)


def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("r, alpha", [(1, 1), (4, 16), (8, 8)])
@pytest.mark.parametrize("stabilized", [False, True])
@torch.no_grad()
def test_outputs_and_merged_weights(r, alpha, stabilized):
    ours = add_lora(model(), r, alpha, TARGETS, rank_stabilized=stabilized)
    config = LoraConfig(
        r=r,
        lora_alpha=alpha,
        use_rslora=stabilized,
        target_modules=list(TARGETS),
        task_type="CAUSAL_LM",
    )
    theirs = get_peft_model(model(), config).eval()
    generator = torch.Generator().manual_seed(1)
    for name, layer in ours.named_modules():
        if isinstance(layer, LoRALinear):
            layer.b.normal_(std=0.1, generator=generator)
            other = theirs.base_model.model.get_submodule(name)
            other.lora_A["default"].weight.copy_(layer.a)
            other.lora_B["default"].weight.copy_(layer.b)
            bound = other.lora_A["default"].weight.shape[1] ** -0.5
            assert layer.a.abs().max() <= bound
    count = sum(p.numel() for p in theirs.parameters() if p.requires_grad)
    assert trainable_parameters(ours) == count
    torch.testing.assert_close(ours(IDS).logits, theirs(IDS).logits, rtol=0, atol=1e-6)
    fused, merged = merge_lora(ours).state_dict(), theirs.merge_and_unload().state_dict()
    assert fused.keys() == merged.keys()
    for name, weight in fused.items():
        torch.testing.assert_close(weight, merged[name], rtol=0, atol=1e-6)


def randomized(module):
    generator = torch.Generator().manual_seed(1)
    for name, parameter in module.named_parameters():
        if name.endswith((".b", "lora_B.default.weight")):
            parameter.data.normal_(std=0.1, generator=generator)
    return module.eval()


@torch.no_grad()
@pytest.mark.parametrize("stabilized", [False, True])
def test_peft_loads_what_we_save(tmp_path, stabilized):
    ours = randomized(add_lora(model(), 4, 6, TARGETS, 0.1, rank_stabilized=stabilized))
    save_adapter(ours, tmp_path)
    theirs = PeftModel.from_pretrained(model(), tmp_path).eval()
    state, mine = get_peft_model_state_dict(theirs), adapter_state(ours)
    assert state.keys() == mine.keys()
    assert all(torch.equal(state[k], mine[k]) for k in mine)
    torch.testing.assert_close(theirs(IDS).logits, ours(IDS).logits, rtol=0, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("stabilized", [False, True])
def test_we_load_what_peft_saves(tmp_path, stabilized):
    config = LoraConfig(
        r=4,
        lora_alpha=6,
        use_rslora=stabilized,
        target_modules=list(TARGETS),
        task_type="CAUSAL_LM",
    )
    theirs = randomized(get_peft_model(model(), config))
    theirs.save_pretrained(tmp_path)
    ours = load_adapter(model(), tmp_path).eval()
    torch.testing.assert_close(ours(IDS).logits, theirs(IDS).logits, rtol=0, atol=1e-6)
