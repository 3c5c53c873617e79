"""The cache with somebody else's tables: the logits of the plain cache, rows where slots say."""

import torch

from efflib.attention.paged import attend_blocks
from efflib.models.cache import KVCache
from efflib.models.llama import Llama, LlamaConfig
from efflib.models.pages import Pages, reading_pages
from efflib.serving.paged import PagedSequences, slot_of


def slots(table, positions, size):
    return torch.tensor([slot_of(table, p, size) for p in positions.tolist()])


def attention(q, k, v, table, length):
    return attend_blocks(q, k, v, table, length, q.shape[1] ** -0.5)[0]


def test_samples_of_one_prompt():
    torch.manual_seed(0)
    model = Llama(LlamaConfig(50, 32, 48, 2, 4, 2, 16)).eval().requires_grad_(False)
    prompt, new = torch.arange(10)[None], torch.arange(9).reshape(3, 3)
    for reads in (False, True):
        sequences = PagedSequences(20, 4)
        pages, plain = Pages(20, 4, sequences, slots), KVCache()
        for cache in (pages, plain):
            model(prompt, cache=cache)
            cache.reorder(torch.tensor([0, 0, 0]))
        for column in new.T:
            right = model(column[:, None], cache=plain)
            if reads:
                with reading_pages(model, pages, attention):
                    seen = model(column[:, None], cache=pages)
                torch.testing.assert_close(seen, right, rtol=1e-4, atol=1e-5)
            else:
                assert torch.equal(model(column[:, None], cache=pages), right)
        assert pages.copied == 2 and pages.length == 13
        assert 20 - sequences.pool.free == 2 + 3 + 3
        assert pages.tables == [sequences.table(name) for name in sequences.names]
