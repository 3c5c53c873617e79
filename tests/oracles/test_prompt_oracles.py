"""Prompts, prefixes and (IA)^3 against peft (make test-oracles)."""

import pytest
import torch
from peft import (
    IA3Config,
    PeftModel,
    PrefixTuningConfig,
    PromptTuningConfig,
    get_peft_model,
)
from peft.utils import get_peft_model_state_dict
from transformers import LlamaConfig as TheirConfig
from transformers import LlamaForCausalLM

from efflib.finetuning.ia3 import ScaledLinear, add_ia3
from efflib.finetuning.peft_prompts import (
    load_ia3,
    load_prefix,
    load_prompt,
    save_ia3,
    save_prefix,
    save_prompt,
)
from efflib.finetuning.prefixes import PrefixModel, prefix_numbers
from efflib.finetuning.prompts import PromptModel
from efflib.models.config import LlamaConfig
from efflib.models.llama import Llama

pytestmark = pytest.mark.oracle

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
}
IDS = torch.arange(24).reshape(2, 12)


def pair():
    """The same weights in their model and in ours."""
    torch.manual_seed(0)
    theirs = LlamaForCausalLM(TheirConfig(**SIZES)).eval()
    ours = Llama(LlamaConfig(**SIZES)).eval()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def near(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=2e-6)  # 2 layers of float32, in another order


@torch.no_grad()
def test_prompts_both_ways(tmp_path):
    base, ours = pair()
    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=5)
    theirs = get_peft_model(base, config).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    prompt = load_prompt(tmp_path / "theirs")
    right = theirs(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits
    near(PromptModel(ours, prompt)(IDS), right[:, 5:])
    own = torch.randn(7, 32)
    save_prompt(own, ours.config, tmp_path / "ours")
    loaded = PeftModel.from_pretrained(pair()[0], tmp_path / "ours").eval()
    near(loaded(input_ids=IDS).logits[:, 7:], PromptModel(ours, own)(IDS))


@torch.no_grad()
def test_prefixes_both_ways(tmp_path):
    base, ours = pair()
    config = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    theirs = get_peft_model(base, config).eval()
    count = sum(p.numel() for p in theirs.parameters() if p.requires_grad)
    assert prefix_numbers(ours.config, 3) == count
    theirs.save_pretrained(tmp_path / "theirs")
    prefix = load_prefix(tmp_path / "theirs")
    near(PrefixModel(ours, prefix)(IDS), theirs(input_ids=IDS).logits)
    own = torch.randn(2, 2, 2, 6, 8)
    save_prefix(own, tmp_path / "ours")
    loaded = PeftModel.from_pretrained(pair()[0], tmp_path / "ours").eval()
    near(loaded(input_ids=IDS).logits, PrefixModel(ours, own)(IDS))


@torch.no_grad()
def test_factors_both_ways(tmp_path):
    base, ours = pair()
    targets = {"target_modules": ["k_proj", "v_proj", "down_proj"]}
    config = IA3Config(task_type="CAUSAL_LM", feedforward_modules=["down_proj"], **targets)
    theirs = get_peft_model(base, config).eval()
    for name, p in theirs.named_parameters():
        if "ia3_l" in name:
            p.uniform_(0.5, 2.0)
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = load_ia3(ours, tmp_path / "theirs")
    near(loaded(IDS), theirs(input_ids=IDS).logits)
    own = add_ia3(ours)
    for m in own.modules():
        if isinstance(m, ScaledLinear):
            m.factors.uniform_(0.5, 2.0)
    save_ia3(own, tmp_path / "ours")
    back = PeftModel.from_pretrained(pair()[0], tmp_path / "ours").eval()
    near(back(input_ids=IDS).logits, own(IDS))
    assert len(get_peft_model_state_dict(back)) == 6
