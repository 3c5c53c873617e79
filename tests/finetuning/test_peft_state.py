"""Adapters in peft's files: round trips, what peft wrote (frozen), and what is refused."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_llama import ALL, ATTENTION, batches, llama, randomize

from efflib.finetuning.lora import LoRALinear, add_lora
from efflib.finetuning.peft_state import adapter_config, adapter_state, load_adapter, save_adapter
from efflib.quantization.nf4 import nf4_model

IDS = batches(1)[0]
FROZEN = Path(__file__).parents[1] / "oracles" / "fixtures" / "peft"  # make_peft.py wrote it


@pytest.mark.parametrize("targets", [ATTENTION, ALL, ("layers.1",)])
@pytest.mark.parametrize("stabilized", [False, True])
def test_there_and_back(tmp_path, targets, stabilized):
    model = randomize(add_lora(llama(), 3, 5, targets, 0.1, rank_stabilized=stabilized))
    save_adapter(model, tmp_path / "new" / "folder")
    back = load_adapter(llama(), tmp_path / "new" / "folder")
    a, b = model.state_dict(), back.state_dict()
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    with torch.no_grad():
        assert torch.equal(model.eval()(IDS), back.eval()(IDS))
    kept = {n for n, p in back.named_parameters() if p.requires_grad}
    assert kept == {n for n in a if n.endswith((".a", ".b"))}
    for layer in back.modules():
        if isinstance(layer, LoRALinear):
            assert (layer.dropout, layer.rank_stabilized) == (0.1, stabilized)


def test_the_names_and_the_size_are_those_of_the_updates(tmp_path):
    model = add_lora(llama(), 2, 4, ("v_proj",))
    state = adapter_state(model)
    assert {k: tuple(v.shape) for k, v in state.items()} == {
        f"base_model.model.model.layers.{i}.self_attn.v_proj.lora_{p}.weight": shape
        for i in range(2)
        for p, shape in (("A", (2, 32)), ("B", (16, 2)))
    }
    assert adapter_config(model)["target_modules"] == [
        f"model.layers.{i}.self_attn.v_proj" for i in range(2)
    ]


def test_what_peft_wrote_is_read():
    """The generator's model is this file's: the same config and seed."""
    expected = load_file(FROZEN / "expected.safetensors")
    base = llama_of(expected)
    loaded = load_adapter(base, FROZEN).eval()
    with torch.no_grad():
        logits = loaded(expected["ids"])
        assert (logits - base(expected["ids"])).abs().max() > 0.01
    # 2 layers of float32 in another order of sums
    torch.testing.assert_close(logits, expected["logits"], rtol=0, atol=1e-5)
    config = json.loads((FROZEN / "adapter_config.json").read_text())
    for layer in loaded.modules():
        if isinstance(layer, LoRALinear):
            assert layer.scale == config["lora_alpha"] / config["r"] ** 0.5


def llama_of(tensors):
    model = llama()
    state = {k.removeprefix("base."): v for k, v in tensors.items() if k.startswith("base.")}
    model.load_state_dict(state)
    return model


def test_an_adapter_of_float_weights_stands_beside_nf4(tmp_path):
    model = randomize(add_lora(llama(), 2, 4, ATTENTION))
    save_adapter(model, tmp_path)
    loaded = load_adapter(nf4_model(llama()), tmp_path)
    assert sum(isinstance(m, LoRALinear) for m in loaded.modules()) == 4


def test_what_is_refused(tmp_path):
    save_adapter(randomize(add_lora(llama(), 2, 4, ATTENTION)), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())

    def refused(message, **changes):
        (tmp_path / "adapter_config.json").write_text(json.dumps(config | changes))
        with pytest.raises(ValueError, match=message):
            load_adapter(llama(), tmp_path)

    refused("peft_type is 'LOHA'", peft_type="LOHA")
    refused("use_dora=True is not read", use_dora=True)
    refused("bias='all' is not read", bias="all")
    refused("rank_pattern=.* is not read", rank_pattern={"q_proj": 3})
    refused(r"q_proj: lora_A.weight is \(2, 32\), the layer needs \(3, 32\)", r=3)
    with pytest.raises(FileNotFoundError):
        load_adapter(llama(), tmp_path / "nowhere")
    with pytest.raises(ValueError, match="Llama has no updates"):
        save_adapter(llama(), tmp_path / "none")
    mixed = add_lora(llama(), 2, 4, ("q_proj",))
    layer = mixed.model.layers[0].self_attn
    layer.v_proj = LoRALinear(layer.v_proj, 3, 4)
    with pytest.raises(ValueError, match="updates differ in"):
        save_adapter(mixed, tmp_path)
