"""The model with its cache in blocks: the logits of the plain cache, and shared prompts."""

import pytest
import torch

from efflib.attention.paged import paged_attention
from efflib.models.cache import KVCache
from efflib.models.llama import Llama, LlamaConfig, sdpa
from efflib.models.paged_cache import PagedKVCache
from efflib.models.pages import reading_pages
from efflib.serving.blocks import OutOfBlocks

CONFIG = LlamaConfig(50, 32, 48, 2, 4, 2, 16)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Llama(CONFIG).eval().requires_grad_(False)


@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_logits_are_those_of_the_plain_cache(model, block_size):
    ids = torch.randint(50, (2, 17), generator=torch.Generator().manual_seed(1))
    paged, plain = PagedKVCache(40, block_size), KVCache()
    for part in ids.split([9, 1, 5, 1, 1], dim=1):
        assert torch.equal(model(part, cache=paged), model(part, cache=plain))
    assert paged.length == 17 and paged.lengths.tolist() == [17, 17]
    assert paged.block_table.shape == (2, -(-17 // block_size))


def test_samples_of_one_prompt_share_its_blocks(model):
    generator = torch.Generator().manual_seed(1)
    prompt, new = torch.randint(50, (1, 10), generator=generator), torch.arange(9).reshape(3, 3)
    paged, plain = PagedKVCache(20, 4), KVCache()
    for cache in (paged, plain):
        model(prompt, cache=cache)
        cache.reorder(torch.tensor([0, 0, 0]))
    assert 20 - paged.sequences.pool.free == 3
    for column in new.T:
        assert torch.equal(model(column[:, None], cache=paged), model(column[:, None], cache=plain))
    # two shared blocks; a third each, of which two were copied; one each for the token after them
    assert 20 - paged.sequences.pool.free == 2 + 3 + 3
    for cache in (paged, plain):
        cache.reorder(torch.tensor([2, 0]))
    assert 20 - paged.sequences.pool.free == 2 + 2 + 2
    last = torch.tensor([[7], [8]])
    assert torch.equal(model(last, cache=paged), model(last, cache=plain))


def test_pages_and_table_are_what_paged_attention_takes(model):
    cache, seen = PagedKVCache(20, 4), []
    ids = torch.randint(50, (3, 11), generator=torch.Generator().manual_seed(1))
    model(ids[:, :-1], cache=cache)
    attention = model.model.layers[1].self_attn
    try:
        attention.attention = lambda *args: seen.append(args) or sdpa(*args)
        model(ids[:, -1:], cache=cache)
    finally:
        attention.attention = sdpa
    q, k, v, mask = seen[0]
    o, _ = paged_attention(q[:, :, 0], *cache.pages(1), cache.block_table, cache.lengths)
    torch.testing.assert_close(o, sdpa(q, k, v, mask)[:, :, 0], rtol=1e-5, atol=1e-6)


def test_what_does_not_fit(model):
    cache = PagedKVCache(2, 4)
    with pytest.raises(OutOfBlocks):
        model(torch.zeros(1, 9, dtype=torch.long), cache=cache)
    cache = PagedKVCache(4, 4)
    model(torch.zeros(1, 3, dtype=torch.long), cache=cache)
    with pytest.raises(ValueError, match="one batch"):
        model(torch.zeros(2, 1, dtype=torch.long), cache=cache)
    with pytest.raises(ValueError, match="rows"):
        cache.reorder(torch.tensor([1]))


def test_attention_over_the_blocks_where_they_lie(model):
    ids = torch.randint(50, (2, 9), generator=torch.Generator().manual_seed(1))
    cache, plain, calls = PagedKVCache(20, 4), KVCache(), []

    def attention(q, k, v, table, length):
        calls.append(length)
        o, _ = paged_attention(q[None], k, v, torch.tensor([table]), torch.tensor([length]))
        return o[0]

    with reading_pages(model, cache, attention):
        logits = [model(part, cache=cache) for part in ids.split([7, 1, 1], dim=1)]
    assert calls == [8] * 4 + [9] * 4  # two layers, two rows
    torch.testing.assert_close(torch.cat(logits, 1), model(ids, cache=plain), rtol=1e-4, atol=1e-5)
    assert all(layer.self_attn.attention is sdpa for layer in model.model.layers)
