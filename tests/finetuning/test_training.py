"""The loop learns, repeats itself bit by bit, and changes what is trainable and nothing else."""

import copy

import pytest
import torch
import torch.nn.functional as F
from small_llama import ALL, ATTENTION, batches, llama

from efflib.finetuning.lora import add_lora
from efflib.finetuning.training import finetune, rate


def test_the_rate_warms_up_and_falls():
    factors = [rate(s, 100) for s in range(100)]
    assert factors[:10] == [min((s + 1) / 10, 1 - s / 100) for s in range(10)]
    assert max(factors) == factors[9] == 0.91 and factors[-1] == pytest.approx(0.01)
    assert rate(0, 1) == 1.0


def test_it_learns_what_there_is_to_learn():
    """Counting up has no uncertainty; the untrained model is at ln 50 = 3.9 nats."""
    trained, losses = finetune(llama(), batches(60), lr=1e-2)
    assert losses[0] > 3.5 and losses[-1] < 1.0  # seen: 0.08
    lora, lora_losses = finetune(add_lora(llama(), 4, 8, ALL + ("lm_head",)), batches(60), lr=3e-2)
    assert lora_losses[0] == losses[0] and lora_losses[-1] < 2.0  # seen: 0.16
    assert not trained.training and not lora.training


def test_the_first_step_against_plain_torch():
    model, ids = llama(), batches(1)[0]
    trained, losses = finetune(model, [ids], lr=1e-3)
    other = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(other.parameters(), lr=1e-3, weight_decay=0.0)
    loss = F.cross_entropy(other(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
    optimizer.step()
    assert losses == [loss.item()]
    for a, b in zip(trained.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not any(torch.equal(v, trained.state_dict()[k]) for k, v in model.state_dict().items())


def test_the_same_arguments_give_the_same_weights():
    model = add_lora(llama(), 2, 4, ATTENTION, dropout=0.3)
    before = copy.deepcopy(model.state_dict())
    state = torch.random.get_rng_state()
    runs = [finetune(model, batches(4), 1e-2, seed)[0].state_dict() for seed in (0, 0, 1)]
    assert all(torch.equal(v, runs[1][k]) for k, v in runs[0].items())
    assert not all(torch.equal(v, runs[2][k]) for k, v in runs[0].items())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())


def test_frozen_parameters_stay():
    model = add_lora(llama(), 2, 4, ATTENTION)
    trained, _ = finetune(model, batches(4), 1e-2)
    before = model.state_dict()
    changed = {k for k, v in trained.state_dict().items() if not torch.equal(v, before[k])}
    assert changed == {n for n, p in model.named_parameters() if p.requires_grad}


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="0 trainable tensors, 1 batches"):
        finetune(llama().requires_grad_(False), batches(1), 1e-3)
    with pytest.raises(ValueError, match="0 batches"):
        finetune(llama(), [], 1e-3)
