"""Sinks and a window in blocks: the same logits as the contiguous cache, in bounded memory."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.attention.paged_streaming import PagedStreamingCache
from efflib.attention.streaming import StreamingCache, stream_logits
from efflib.models.llama import Llama, LlamaConfig
from efflib.models.rotary import RopeScaling

THETA = 100.0
CONFIG = LlamaConfig(31, 24, 32, 2, 4, 2, 8, rope_theta=THETA)


SCALING = RopeScaling(4.0, 1.0, 4.0, 16)


def tiny(scaling: RopeScaling | None = None) -> Llama:
    generator = torch.Generator().manual_seed(0)
    model = Llama(dataclasses.replace(CONFIG, rope_scaling=scaling)).eval().double()
    for p in model.parameters():
        if p.ndim == 2:
            p.data = torch.randn(p.shape, generator=generator).double() * 1.5 / p.shape[1] ** 0.5
    return model


MODEL, SCALED = tiny(), tiny(SCALING)


def ids_of(seed: int, length: int) -> torch.Tensor:
    return torch.randint(31, (2, length), generator=torch.Generator().manual_seed(seed))


@given(
    st.integers(2, 12), st.integers(0, 5), st.integers(1, 5), st.integers(0, 99), st.booleans(),
    st.data(),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_equal_to_the_contiguous_cache(size, sinks, block_size, seed, scaled, data):
    sinks = min(sinks, size - 1)
    model, scaling = (SCALED, SCALING) if scaled else (MODEL, None)
    most = min(4, size - sinks)
    chunks = data.draw(st.lists(st.integers(1, most), min_size=1, max_size=14))
    ids = ids_of(seed, sum(chunks))
    caches = [
        PagedStreamingCache(size, sinks, block_size, THETA, scaling),
        StreamingCache(size, range(sinks), THETA, scaling),
    ]
    for piece in ids.split(chunks, dim=1):
        with torch.no_grad():
            paged, contiguous = (model(piece, cache=cache) for cache in caches)
        # logits of order 1 through two layers: some hundred roundings of 1e-16 each
        torch.testing.assert_close(paged, contiguous, rtol=0, atol=1e-10)
        assert caches[0].numbers() == caches[1].tokens[0].tolist()
        assert caches[0].length == caches[1].length


@pytest.mark.parametrize("block_size", [1, 3, 4])
def test_blocks_are_used_again_and_the_first_stays(block_size):
    cache = PagedStreamingCache(10, 2, block_size, THETA)
    pinned = -(-2 // block_size)
    for i, token in enumerate(ids_of(3, 80).split(1, dim=1)):
        with torch.no_grad():
            MODEL(token, cache=cache)
        if i == 2:
            first = [cache.table[j] for j in range(pinned)]
        assert len(cache.table) + cache.pool.free == cache.pool.size
        assert len(set(cache.table.values())) == len(cache.table)
        assert len(cache.table) <= pinned + -(-7 // block_size) + 1
        assert cache.next_position <= 10
    assert [cache.table[j] for j in range(pinned)] == first
    assert cache.numbers() == [0, 1, *range(72, 80)]
    assert all(x.shape[0] == cache.pool.size * block_size for x in cache.buffers)


def test_a_row_holds_what_came_with_its_token():
    cache = PagedStreamingCache(5, 1, 2, THETA)
    for t in range(30):
        x = torch.full((1, 1, 1, 2), float(t))
        _, v = cache.append(0, x, x)
        assert v[0, 0, :, 0].tolist() == [float(n) for n in cache.numbers()]


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="size=4 must exceed sinks=4"):
        PagedStreamingCache(4, 4, 2, THETA)
    with pytest.raises(ValueError, match="block_size=0"):
        PagedStreamingCache(4, 1, 0, THETA)
    with pytest.raises(ValueError, match="theta=0"):
        PagedStreamingCache(4, 1, 2, 0)
    cache = PagedStreamingCache(6, 2, 2, THETA)
    with pytest.raises(ValueError, match="5 tokens at once; size=6 has room for 4"):
        MODEL(ids_of(0, 5), cache=cache)
    stream_logits(MODEL, ids_of(0, 3), cache)
    with pytest.raises(ValueError, match="to which"):
        stream_logits(MODEL, ids_of(0, 3)[:1], cache)
