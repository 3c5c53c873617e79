"""efflib.finetuning.lora against peft (make test-oracles)."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from efflib.finetuning.lora import LoRALinear, add_lora, merge_lora, trainable_parameters

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
@torch.no_grad()
def test_outputs_and_merged_weights(r, alpha):
    ours = add_lora(model(), r, alpha, TARGETS)
    config = LoraConfig(r=r, lora_alpha=alpha, target_modules=list(TARGETS), task_type="CAUSAL_LM")
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
