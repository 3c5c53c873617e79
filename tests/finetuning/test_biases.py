"""BitFit and random weights: the same function at the start, just so many numbers, anywhere."""

import pytest
import torch
import torch.nn.functional as F
from small_llama import batches, llama
from torch import nn

from efflib.finetuning.biases import SparseLinear, add_biases, add_random, draw, merge_random
from efflib.finetuning.ia3 import add_ia3, merge_ia3
from efflib.finetuning.lora import trainable_parameters
from efflib.finetuning.training import finetune

IDS = torch.cat(batches(2))
OUTPUTS = 32 + 16 + 16 + 32 + 48 + 48 + 32  # of the seven linears of a block


@torch.no_grad()
def test_biases_begin_as_nothing():
    model = llama()
    with_biases = add_biases(model)
    assert torch.equal(with_biases(IDS), model(IDS))
    trained = {n for n, p in with_biases.named_parameters() if p.requires_grad}
    assert all(n.startswith("model.layers.") and n.endswith(".bias") for n in trained)
    assert trainable_parameters(with_biases) == 2 * OUTPUTS
    assert all(m.bias is None for m in model.modules() if isinstance(m, nn.Linear))


def test_biases_that_are_there_stay():
    layer = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, bias=False))
    new = add_biases(layer, ("0",))
    assert torch.equal(new[0].bias, layer[0].bias) and new[0].bias is not layer[0].bias
    assert new[0].bias.requires_grad and new[1].bias is None


def test_training_moves_biases_alone():
    after, losses = finetune(add_biases(llama()), batches(1) * 40, 3e-2)
    assert losses[-1] < losses[0] - 0.1
    assert all(torch.equal(after.state_dict()[n], t) for n, t in llama().state_dict().items())


@pytest.mark.parametrize("n", [0, 1, 7, 60])
def test_places_are_all_different(n):
    places = draw([10, 1, 0, 49], n, seed=3)
    assert sum(map(len, places)) == n
    for own, size in zip(places, (10, 1, 0, 49), strict=True):
        assert own.tolist() == sorted(set(own.tolist())) and all(0 <= i < size for i in own)


def test_every_weight_is_as_likely():
    counts, times = torch.zeros(12), 3000
    for seed in range(times):
        for start, own in zip((0, 2, 9), draw([2, 7, 3], 4, seed), strict=True):
            counts[start + own] += 1
    # of 3000 draws each place is in 4/12: 1000, with a deviation of 26
    assert (counts - times * 4 / 12).abs().max() < 5 * 26


def test_random_weights():
    model = llama()
    sparse = add_random(model, 100, seed=1)
    assert trainable_parameters(sparse) == 100
    with torch.no_grad():
        assert torch.equal(sparse(IDS), model(IDS))
        for layer in sparse.modules():
            if isinstance(layer, SparseLinear):
                layer.delta.normal_()
                s = layer.weight() - layer.base.weight
                assert s.count_nonzero() == len(layer.places)
        logits = sparse(IDS)
        assert torch.equal(merge_random(sparse)(IDS), logits)
    assert not any(isinstance(m, SparseLinear) for m in merge_random(sparse).modules())


def test_the_gradient_is_that_of_the_weights():
    torch.manual_seed(0)
    base, x = nn.Linear(5, 4), torch.randn(7, 5)
    layer = SparseLinear(nn.Linear(5, 4), torch.tensor([0, 6, 19]))
    layer.base.load_state_dict(base.state_dict())
    layer(x).square().sum().backward()
    F.linear(x, base.weight, base.bias).square().sum().backward()
    torch.testing.assert_close(layer.delta.grad, base.weight.grad.flatten()[[0, 6, 19]])
    assert layer.base.weight.grad is None and layer.base.bias.grad is None


def test_what_is_refused():
    with pytest.raises(ValueError, match="n=5 of 4"):
        draw([1, 3], 5)
    with pytest.raises(ValueError, match="n=-1"):
        draw([4], -1)
    with pytest.raises(ValueError, match="no linear"):
        add_biases(llama(), ("norm",))


@torch.no_grad()
@pytest.mark.parametrize("dtype, exact", [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_ia3_begins_as_nothing_and_merges(dtype, exact):
    model = llama(dtype)
    scaled = add_ia3(model)
    assert torch.equal(scaled(IDS), model(IDS))
    assert trainable_parameters(scaled) == 2 * (16 + 16 + 48)
    for p in scaled.parameters():
        if p.requires_grad:
            p.uniform_(0.5, 2.0)
    logits = scaled(IDS)
    assert (logits - model(IDS)).abs().max() > 0.01
    torch.testing.assert_close(merge_ia3(scaled)(IDS), logits, rtol=exact, atol=exact)
    with pytest.raises(ValueError, match="in outputs and in inputs"):
        add_ia3(model, ("k_proj",), ("self_attn",))
