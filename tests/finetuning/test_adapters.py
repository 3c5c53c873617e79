"""Adapters: the identity at the start, gradients where promised, another one for each row."""

import copy

import pytest
import torch
from small_llama import batches, llama
from torch import nn

from efflib.finetuning.adapters import Adapter, Behind, add_adapters, together
from efflib.finetuning.batched import use
from efflib.finetuning.lora import trainable_parameters
from efflib.finetuning.training import finetune

IDS = torch.cat(batches(2))  # [4, 17]


def moved(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.normal_(std=0.3, generator=generator)
    return model


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_model_begins_as_it_was(dtype):
    model = llama(dtype)
    adapted = add_adapters(model, 3)
    assert torch.equal(adapted(IDS), model(IDS))
    assert adapted(IDS).dtype == dtype
    assert not torch.equal(moved(adapted, 0)(IDS), model(IDS))


def test_the_formula():
    adapter = moved(Adapter(5, 2), 1)
    y = torch.randn(3, 4, 5, dtype=torch.float64)
    down, c, up, u = (p.detach().double() for p in adapter.parameters())
    low = y @ down.T + c
    gelu = low * torch.special.ndtr(low)
    torch.testing.assert_close(adapter(y), y + gelu @ up.T + u, rtol=1e-12, atol=1e-12)


def test_what_is_trained_and_what_moves_in_the_first_step():
    adapted = add_adapters(llama(), 3)
    trained = {n for n, p in adapted.named_parameters() if p.requires_grad}
    assert trained == {n for n, _ in adapted.named_parameters() if ".adapter." in n}
    assert trainable_parameters(adapted) == 2 * 2 * (2 * 32 * 3 + 3 + 32)
    adapted(IDS).logsumexp(-1).sum().backward()
    for layer in adapted.modules():
        if isinstance(layer, Behind):
            grads = {n: p.grad.abs().max().item() for n, p in layer.adapter.named_parameters()}
            assert grads["up"] > 0 and grads["up_bias"] > 0
            assert grads["down"] == 0 == grads["down_bias"]  # behind zeros of up
    after, losses = finetune(add_adapters(llama(), 3), batches(1) * 30, 1e-2)
    assert losses[-1] < losses[0] - 0.1
    base, new = llama().state_dict(), after.state_dict()
    for name, tensor in base.items():
        other = new.get(name, new.get(name.replace(".weight", ".base.weight")))
        assert torch.equal(tensor, other), name


def test_the_same_seed_draws_the_same_and_layers_differ():
    one, same, other = (add_adapters(llama(), 2, seed=s) for s in (0, 0, 1))
    downs = [[m.down for m in a.modules() if isinstance(m, Adapter)] for a in (one, same, other)]
    assert all(torch.equal(a, b) for a, b in zip(*downs[:2], strict=True))
    assert not torch.equal(downs[0][0], downs[2][0]) and not torch.equal(downs[0][0], downs[0][2])
    assert all(p.abs().max() <= 32**-0.5 for p in downs[0])


@torch.no_grad()
def test_every_row_gets_its_own():
    model = llama(torch.float64)
    adapted = {"a": moved(add_adapters(model, 2), 1), "b": moved(add_adapters(model, 5), 2)}
    both, names = together(model, adapted), ["b", None, "a", "b"]
    with use(both, names):
        logits = both(IDS)
    for row, name, ids in zip(logits, names, IDS, strict=True):
        right = (adapted[name] if name else model)(ids[None])[0]
        torch.testing.assert_close(row, right, rtol=1e-10, atol=1e-10)
    assert torch.equal(both(IDS), model(IDS))  # nobody has chosen
    with use(both, ["a"]), pytest.raises(ValueError, match="one a row"):
        both(IDS)


def test_what_is_refused():
    with pytest.raises(ValueError, match="adapters already"):
        add_adapters(add_adapters(llama(), 2), 2)
    with pytest.raises(ValueError, match="m=0"):
        add_adapters(llama(), 0)
    with pytest.raises(ValueError, match="no module"):
        add_adapters(llama(), 2, ("out_proj",))
    with pytest.raises(ValueError, match="no linear"):
        add_adapters(llama(), 2, ("norm",))
    others = {"a": add_adapters(llama(), 2), "b": add_adapters(llama(), 2, ("o_proj",))}
    with pytest.raises(ValueError, match="the same layers"):
        together(llama(), others)
    with pytest.raises(ValueError, match="the same layers"):
        together(llama(), {})


@torch.no_grad()
def test_without_gelu_it_would_merge():
    """What stands in the way of merging is the function between the two products."""
    torch.manual_seed(0)
    adapter, linear = moved(Adapter(6, 2), 3), nn.Linear(4, 6, bias=False)
    down, c, up, u = adapter.parameters()
    one = copy.deepcopy(linear)
    one.weight.copy_(linear.weight + up @ (down @ linear.weight))
    x = torch.randn(9, 4)
    y = linear(x)
    straight = y + (y @ down.T + c) @ up.T + u
    torch.testing.assert_close(one(x) + up @ c + u, straight, rtol=1e-5, atol=1e-5)
    design = torch.cat([x, torch.ones(9, 1)], 1).double()
    fitted = design @ torch.linalg.lstsq(design, adapter(y).double()).solution
    assert (fitted - adapter(y)).abs().max() > 1e-3  # no W and b do what the adapter does
