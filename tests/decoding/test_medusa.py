"""Medusa heads: what they learn, that the exact rule loses nothing, that the typical one does."""

import pytest
import torch
from tiny_models import ids_of, tiny

from efflib.decoding.medusa import (
    MedusaHeads,
    MedusaTree,
    heads_loss,
    train_heads,
    typical,
    verify_typical,
)
from efflib.decoding.sampling import Sampling, generate
from efflib.decoding.tree import full_tree, tree_generate


def test_heads_read_and_say_what_is_k_places_on():
    """A made-up target: hidden states that name their own place, so that each loss is known."""
    target = tiny(0)
    heads = MedusaHeads(target, 2)
    hidden, ids = torch.randn(2, 6, 32), ids_of(0, 2, 6)
    said = (hidden @ target.lm_head.weight.T).log_softmax(-1)  # untrained heads say this
    right = [-said[:, : -k - 1].gather(2, ids[:, k + 1 :, None]).mean() for k in (1, 2)]
    assert heads_loss(heads, hidden, ids).item() == pytest.approx(sum(right).item() / 2, rel=1e-5)
    assert heads(hidden).shape == (2, 2, 6, 61)
    with pytest.raises(ValueError, match="need at least 4 tokens"):
        heads_loss(heads, hidden[:, :3], ids[:, :3])


def test_training_lowers_the_loss_and_leaves_the_target():
    target = tiny(0)
    before = {name: p.clone() for name, p in target.named_parameters()}
    text = generate(target, ids_of(0, 16, 2), 20)  # greedy: what follows is decided by the target
    with torch.no_grad():
        hidden = target.hidden(text)
        first = heads_loss(MedusaHeads(target, 2), hidden, text).item()
    heads = train_heads(target, text, 2, steps=40, rate=2e-2)
    assert heads_loss(heads, hidden, text).item() < 0.9 * first
    assert all(torch.equal(before[name], p) for name, p in target.named_parameters())


@pytest.mark.parametrize("widths", [(1, 1), (3, 2)])
def test_greedy_text_is_left_as_it_is(widths):
    target = tiny(0).double()
    text = generate(target, ids_of(0, 16, 2), 20)
    heads = train_heads(target, text, 2, steps=40, rate=2e-2)
    accepted = 0
    for seed in range(2):
        prompt = ids_of(seed, 1, 4)
        out = tree_generate(target, MedusaTree(heads, widths), prompt, 20)
        assert torch.equal(out.ids, generate(target, prompt, 20))
        accepted += out.accepted
    assert accepted > 0


def test_typical_acceptance_by_hand_and_that_it_is_lossy():
    p = torch.tensor([[0.5, 0.45, 0.05], [1.0, 0.0, 0.0]])
    # entropy of the first row 0.856: exp(-0.856) = 0.425, so the bound is 0.038
    assert typical(p).tolist() == [[True, True, True], [True, False, False]]
    assert typical(p, delta=1.0).tolist() == [[True, True, False], [True, False, False]]
    tree = full_tree(torch.tensor(0), [torch.tensor([1])])
    rows = p[[0, 1]]
    for seed in range(20):  # the token of probability 0.45 is taken every time
        path, last = verify_typical(tree, rows, torch.Generator().manual_seed(seed))
        assert path == [0, 1] and last.tolist() == [0]
    with pytest.raises(ValueError, match="epsilon=0"):
        typical(p, epsilon=0)


def test_typical_text_is_the_targets_no_more():
    target = tiny(0)
    heads, prompt = MedusaHeads(target, 2), ids_of(1, 1, 4)
    out = tree_generate(
        target, MedusaTree(heads, (2, 2)), prompt, 20, Sampling(1.0), None, verify_typical
    )
    assert not torch.equal(out.ids, generate(target, prompt, 20))


def test_bad_arguments_are_named():
    heads = MedusaHeads(tiny(0), 2)
    with pytest.raises(ValueError, match="3 widths for 2 heads"):
        MedusaTree(heads, (1, 1, 1))
    with pytest.raises(ValueError, match="width=0"):
        MedusaTree(heads, (0,))
