"""Token trees: what each node sees, that nothing is lost, and what the cache keeps."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import ids_of, tiny

from efflib.decoding.sampling import Sampling, filtered_probabilities, generate
from efflib.decoding.speculative import speculative_generate
from efflib.decoding.tree import (
    ModelTree,
    Tree,
    full_tree,
    tree_generate,
    tree_mask,
    verify_tree,
)
from efflib.models import KVCache

TREE = Tree(torch.tensor([9, 3, 5, 3, 7, 1]), [-1, 0, 0, 2, 1, 3])


def test_each_node_reads_its_own_path():
    """A pass over a tree gives the logits of passes over its paths, one by one."""
    model, prompt = tiny(0).double(), ids_of(1, 1, 5)
    cache = KVCache()
    with torch.no_grad():
        model(prompt, cache=cache)
        depths = torch.tensor(TREE.depths())
        logits = model(TREE.tokens[None], cache, 5 + depths, tree_mask(TREE.parents, 5))[0]
        for node in range(6):
            alone = torch.cat([prompt, TREE.tokens[TREE.path(node)][None]], dim=1)
            torch.testing.assert_close(logits[node], model(alone)[0, -1])
        cache.keep(5, 5 + torch.tensor([0, 2, 3]))  # 9 5 3, and then any token
        after = model(torch.tensor([[4]]), cache=cache)[0, -1]
        alone = torch.cat([prompt, torch.tensor([[9, 5, 3, 4]])], dim=1)
        torch.testing.assert_close(after, model(alone)[0, -1])
    assert TREE.depths() == [0, 1, 1, 2, 2, 3] and TREE.path(5) == [0, 2, 3, 5]


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 2**31))
def test_a_node_with_children_passes_on_exactly_p(seed):
    """Summed over all ways: the token behind node 0 is distributed as the target's own."""
    generator = torch.Generator().manual_seed(seed)
    v = 5
    p = torch.rand(4, v, generator=generator, dtype=torch.float64) ** 3
    p[p < 0.05] = 0
    p[:, 0] += 0.1
    p = p / p.sum(-1, keepdim=True)
    children = torch.randperm(v, generator=generator)[:3].tolist()
    emitted, reach, left = torch.zeros(v, dtype=torch.float64), 1.0, p[0]
    for token in children:
        emitted[token] += reach * left[token]
        reach *= 1 - left[token].item()
        rest = left.index_fill(0, torch.tensor(token), 0)
        left = rest / rest.sum() if rest.sum() > 0 else left
    torch.testing.assert_close(emitted + reach * left, p[0])
    tree = full_tree(torch.tensor(0), [torch.tensor(children)])
    counts, n = torch.zeros(v, dtype=torch.float64), 150
    for _ in range(n):
        path, last = verify_tree(tree, p, generator)
        counts[tree.tokens[path[1]] if len(path) > 1 else last[0]] += 1
        assert len(path) > 1 or last[0] not in children or p[0, last[0]] == 0
    expected = n * p[0]
    assert counts[expected == 0].sum() == 0
    spread = (n * p[0] * (1 - p[0])).sqrt()
    assert ((counts - expected).abs() <= 7 * spread + 1e-9).all()


@pytest.mark.parametrize("widths", [(1, 1, 1), (3,), (4, 1, 2)])
def test_greedy_text_is_left_as_it_is(widths):
    target, other = tiny(0).double(), tiny(1).double()
    near = tiny(0).double()
    noise = torch.randn(61, 32, generator=torch.Generator().manual_seed(2))
    near.lm_head.weight.data += 0.15 * noise
    for draft in (other, near):
        for seed, length in ((0, 1), (1, 6)):
            prompt = ids_of(seed, 1, length)
            out = tree_generate(target, ModelTree(draft, widths), prompt, 21)
            assert torch.equal(out.ids, generate(target, prompt, 21))
            assert out.passes + out.accepted == 21


def test_the_targets_own_tree_is_accepted_to_its_end():
    target = tiny(0).double()
    out = tree_generate(target, ModelTree(target, (2, 2, 2)), ids_of(3, 1, 4), 20)
    assert out.passes == 5 and out.accepted == 15  # 4 tokens each, from the prompt's pass on


@pytest.mark.parametrize("g", [1, 2, 5])
def test_a_chain_takes_the_passes_of_the_loop(g):
    target, near = tiny(0).double(), tiny(0).double()
    noise = torch.randn(61, 32, generator=torch.Generator().manual_seed(2))
    near.lm_head.weight.data += 0.15 * noise
    for seed, length in ((0, 1), (1, 6), (2, 9)):
        prompt = ids_of(seed, 1, length)
        chain = tree_generate(target, ModelTree(near, (1,) * g), prompt, 30)
        loop = speculative_generate(target, near, prompt, 30, g)
        assert torch.equal(chain.ids, loop.ids)
        assert chain.passes == loop.passes < 30


def test_wider_trees_accept_more():
    target, near = tiny(0).double(), tiny(0).double()
    noise = torch.randn(61, 32, generator=torch.Generator().manual_seed(2))
    near.lm_head.weight.data += 0.15 * noise
    passes = [
        sum(
            tree_generate(target, ModelTree(near, widths), ids_of(s, 1, 5), 30).passes
            for s in range(2)
        )
        for widths in ((1, 1, 1), (4, 2, 1))
    ]
    assert passes[1] < passes[0]


def test_sampled_text_is_the_targets():
    """Two tokens over a vocabulary of 4, 250 runs: chi-square over the 16 pairs."""
    target, draft = tiny(6, 1, 16, vocab=4), tiny(7, 1, 16, vocab=4)
    prompt, n, sampling = ids_of(8, 1, 3, vocab=4), 250, Sampling(1.4)
    generator, counts = torch.Generator().manual_seed(9), torch.zeros(4, 4)
    for _ in range(n):
        out = tree_generate(target, ModelTree(draft, (2, 1)), prompt, 3, sampling, generator)
        counts[tuple(out.ids[0, 4:].tolist())] += 1
    every = torch.cartesian_prod(*3 * [torch.arange(4)])
    with torch.no_grad():
        logits = target(torch.cat([prompt.expand(64, 3), every], dim=1))[:, 2:5]
    chances = filtered_probabilities(logits, sampling).gather(2, every[..., None]).prod(1)
    expected = n * chances.view(4, 16).sum(0)
    counts, rare = counts.flatten(), expected < 5
    expected = torch.cat([expected[~rare], expected[rare].sum()[None] + 1e-9])
    counts = torch.cat([counts[~rare], counts[rare].sum()[None]])
    bound = len(expected) + 6 * (2 * len(expected)) ** 0.5
    assert ((counts - expected) ** 2 / expected).sum() < bound


@pytest.mark.parametrize(
    "tree, message",
    [
        (Tree(torch.tensor([1, 2]), [-1]), "a token for each of 1 parents"),
        (Tree(torch.tensor([1, 2]), [0, 0]), r"parents\[0\]=0"),
        (Tree(torch.tensor([1, 2]), [-1, 1]), r"parents\[1\]=1 must be from 0 to 0"),
        (Tree(torch.tensor([1.0]), [-1]), "tokens must be integers"),
    ],
)
def test_what_is_no_tree_is_named(tree, message):
    with pytest.raises(ValueError, match=message):
        tree.checked()
    with pytest.raises(ValueError, match="6 nodes need as many rows"):
        verify_tree(TREE, torch.ones(5, 3))
