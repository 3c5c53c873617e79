"""Prompts, prefixes and factors in peft's files: round trips, what peft wrote, what is refused."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_llama import batches, llama

from efflib.finetuning.ia3 import ScaledLinear, add_ia3
from efflib.finetuning.peft_prompts import (
    load_ia3,
    load_prefix,
    load_prompt,
    save_ia3,
    save_prefix,
    save_prompt,
)
from efflib.finetuning.prefixes import PrefixModel
from efflib.finetuning.prompts import PromptModel

IDS = batches(1)[0]
FROZEN = Path(__file__).parents[1] / "oracles" / "fixtures" / "peft_prompts"


def test_there_and_back(tmp_path):
    prompt, prefix = torch.randn(4, 32), torch.randn(2, 2, 2, 3, 8)
    save_prompt(prompt, llama().config, tmp_path / "new" / "prompt")
    save_prefix(prefix, tmp_path / "prefix")
    assert torch.equal(load_prompt(tmp_path / "new" / "prompt"), prompt)
    assert torch.equal(load_prefix(tmp_path / "prefix"), prefix)
    scaled = add_ia3(llama())
    with torch.no_grad():
        for layer in scaled.modules():
            if isinstance(layer, ScaledLinear):
                layer.factors.uniform_(0.5, 2.0)
        save_ia3(scaled, tmp_path / "ia3")
        back = load_ia3(llama(), tmp_path / "ia3")
        assert torch.equal(back(IDS), scaled(IDS))
    kept = {n for n, p in back.named_parameters() if p.requires_grad}
    assert kept == {n for n, _ in back.named_parameters() if n.endswith(".factors")}


@torch.no_grad()
def test_what_peft_wrote_is_read():
    expected = load_file(FROZEN / "expected.safetensors")
    base, ids = llama(), expected["ids"]
    state = {k.removeprefix("base."): v for k, v in expected.items() if k.startswith("base.")}
    base.load_state_dict(state)
    plain = base(ids)
    made = {
        "ia3": load_ia3(base, FROZEN / "ia3")(ids),
        "prompt": PromptModel(base, load_prompt(FROZEN / "prompt"))(ids),
        "prefix": PrefixModel(base, load_prefix(FROZEN / "prefix"))(ids),
    }
    for kind, logits in made.items():
        right = expected[kind][:, -ids.shape[1] :]  # peft's are longer by the prompt
        assert (right - plain).abs().max() > 0.01
        # 2 layers of float32 in another order of sums
        torch.testing.assert_close(logits, right, rtol=0, atol=1e-5)


def test_what_is_refused(tmp_path):
    save_prefix(torch.randn(2, 2, 2, 3, 8), tmp_path)
    with pytest.raises(ValueError, match="peft_type is 'PREFIX_TUNING', expected 'PROMPT_TUNING'"):
        load_prompt(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    changed = json.dumps(config | {"num_virtual_tokens": 4})
    (tmp_path / "adapter_config.json").write_text(changed)
    with pytest.raises(ValueError, match=r"prompt_embeddings is \(3, 64\), the config says"):
        load_prefix(tmp_path)
    changed = json.dumps(config | {"modules_to_save": ["lm_head"]})
    (tmp_path / "adapter_config.json").write_text(changed)
    with pytest.raises(ValueError, match="modules_to_save"):
        load_prefix(tmp_path)
    with pytest.raises(ValueError, match="Llama has no factors"):
        save_ia3(llama(), tmp_path)
    with pytest.raises(ValueError, match="must be a non-empty"):
        save_prompt(torch.zeros(0, 32), llama().config, tmp_path)
    save_ia3(add_ia3(llama()), tmp_path)
    with pytest.raises(ValueError, match="there is no"):
        load_ia3(llama().model, tmp_path)
    with pytest.raises(FileNotFoundError):
        load_prompt(tmp_path / "nowhere")
