"""QLoRA starts as the model in NF4, trains A and B only, and holds less."""

import torch
from small_llama import ALL, ATTENTION, batches, llama, randomize

from efflib.finetuning.lora import (
    LoRALinear,
    add_lora,
    base_weight,
    merge_lora,
    remove_lora,
    training_bytes,
    update,
)
from efflib.finetuning.qlora import add_qlora
from efflib.finetuning.training import finetune
from efflib.quantization.nf4 import NF4Linear, dequantize_nf4, nf4_bits, nf4_model, quantize_nf4

IDS = batches(1)[0]


def test_it_starts_as_the_model_in_nf4():
    model = add_qlora(llama(), 2, 4, ATTENTION)
    with torch.no_grad():
        assert torch.equal(model(IDS), nf4_model(llama())(IDS))
        assert not torch.equal(model(IDS), llama()(IDS))
    kinds = [type(m) for m in model.modules()]
    assert kinds.count(NF4Linear) == 14 and kinds.count(LoRALinear) == 4
    assert type(model.lm_head) is torch.nn.Linear


def test_only_updates_are_trained_and_the_codes_stay():
    model = randomize(add_qlora(llama(), 2, 4, ALL))
    trained, losses = finetune(model, batches(5), lr=1e-2)
    before, after = model.state_dict(), trained.state_dict()
    for name, value in after.items():
        assert torch.equal(value, before[name]) != name.endswith((".a", ".b")), name
    assert len(losses) == 5


def test_merging_gives_float_weights_that_hold_the_update():
    model = randomize(add_qlora(llama(), 2, 4, ATTENTION))
    fused = merge_lora(model)
    made = model.model.layers[1].self_attn.v_proj
    expected = (base_weight(made.base).double() + update(made)).float()
    weight = fused.model.layers[1].self_attn.v_proj.weight
    assert torch.equal(weight, expected)
    with torch.no_grad():
        torch.testing.assert_close(fused(IDS), model(IDS), rtol=1e-4, atol=1e-5)


def test_a_small_update_is_lost_in_nf4():
    """Why merging does not go back to NF4: steps below half a gap change hardly a code."""
    w = llama().model.layers[0].mlp.up_proj.weight.detach()
    w_hat = dequantize_nf4(quantize_nf4(w, double=False))
    step = 1e-2 * w.abs().max() * torch.randn(w.shape, generator=torch.Generator().manual_seed(0))
    change = dequantize_nf4(quantize_nf4(w_hat + step, double=False)) - w_hat
    survives = (change * step).sum() / step.square().sum()  # 1: the update, 0: nothing of it
    assert survives < 0.1  # seen: 0.008


def test_removing_gives_the_nf4_model():
    removed = remove_lora(randomize(add_qlora(llama(), 2, 4, ATTENTION)))
    with torch.no_grad():
        assert torch.equal(removed(IDS), nf4_model(llama())(IDS))


def test_it_holds_less_than_lora_by_what_nf4_saves():
    lora, qlora = add_lora(llama(), 2, 4, ALL), add_qlora(llama(), 2, 4, ALL)
    a, b = training_bytes(lora), training_bytes(qlora)
    shapes = [m.base.weight.shape for m in lora.modules() if isinstance(m, LoRALinear)]
    saved = sum(32 * s.numel() - nf4_bits(s) for s in shapes) // 8
    assert a.weights - b.weights == saved
    assert a[1:] == b[1:]
