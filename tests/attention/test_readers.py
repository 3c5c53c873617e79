"""Four ways to read: their logits are those of the caches, their costs those that are counted."""

import pytest
import torch

from efflib.attention.readers import WAYS, CachedReader, Cost, Recomputing, cost, held_bytes, reader
from efflib.attention.streaming import StreamingCache, recomputed_logits, stream_logits
from efflib.models import KVCache, Llama, LlamaConfig

CONFIG = LlamaConfig(31, 24, 32, 2, 4, 2, 8, rope_theta=100.0)


def tiny() -> Llama:
    generator = torch.Generator().manual_seed(0)
    model = Llama(CONFIG).eval()
    for p in model.parameters():
        if p.ndim == 2:
            p.data = torch.randn(p.shape, generator=generator) * 1.5 / p.shape[1] ** 0.5
    return model


MODEL = tiny()
IDS = torch.randint(31, (2, 20), generator=torch.Generator().manual_seed(1))


def in_pieces(one) -> torch.Tensor:
    return torch.cat([one.read(piece) for piece in IDS.split([7, 1, 12], dim=1)], dim=1)


def test_every_way_gives_the_logits_of_its_cache():
    theta, every = CONFIG.rope_theta, torch.arange(20)
    expected = {
        "dense": stream_logits(MODEL, IDS, KVCache()),
        "window": stream_logits(MODEL, IDS, StreamingCache(6, (), theta)),
        "sinks": stream_logits(MODEL, IDS, StreamingCache(6, range(2), theta)),
        "paged": stream_logits(MODEL, IDS, StreamingCache(6, range(2), theta)),
        "recompute": recomputed_logits(MODEL, IDS, 6, every),
    }
    assert set(expected) == set(WAYS)
    for way, logits in expected.items():
        seen = in_pieces(reader(MODEL, way, size=6, sinks=2, block_size=4))
        torch.testing.assert_close(seen, logits, rtol=0, atol=1e-4)  # float32, logits of order 1
    seen = in_pieces(Recomputing(MODEL, 6, keep_first=True))
    right = recomputed_logits(MODEL, IDS, 6, every, keep_first=True)
    torch.testing.assert_close(seen, right, rtol=0, atol=1e-4)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [3, 6, 20, 30])
def test_costs_are_what_is_counted(way, size):
    one = reader(MODEL, way, size=size, sinks=2, block_size=4)
    assert (one.forwarded, one.scores) == (0, 0)
    in_pieces(one)
    assert cost(way, 20, size) == (one.forwarded, one.scores)


def test_costs_as_sums():
    for tokens in range(9):
        for size in range(1, 11):
            windows = [min(size, t + 1) for t in range(tokens)]
            assert cost("dense", tokens, size) == Cost(tokens, sum(range(tokens + 1)))
            assert cost("window", tokens, size) == Cost(tokens, sum(windows))
            triangles = sum(n * (n + 1) // 2 for n in windows)
            assert cost("recompute", tokens, size) == Cost(sum(windows), triangles)
    assert cost("recompute", 10**15, 10**6).forwarded == 10**21 - 10**6 * (10**6 - 1) // 2


@pytest.mark.parametrize("way", [way for way in WAYS if way != "dense"])
def test_memory_is_flat(way):
    one, seen = reader(MODEL, way, size=6, sinks=2, block_size=4), []
    for token in IDS.repeat(1, 4).split(1, dim=1):
        one.read(token)
        seen.append(one.bytes)
    assert max(seen[10:]) == min(seen[10:])


def test_memory_counts_whole_buffers_once():
    cache = KVCache()
    stream_logits(MODEL, IDS, cache)
    rows = 2 * 2 * 8 * 4  # of one token: batch, heads, d, float32
    assert held_bytes(cache) >= 2 * 2 * 20 * rows
    storage = sum(k.untyped_storage().nbytes() for k in cache.keys + cache.values)
    assert held_bytes(cache) == storage > 2 * 2 * 20 * rows
    assert held_bytes(KVCache()) == 0
    streamed = StreamingCache(4, range(2), 100.0)
    stream_logits(MODEL, IDS, streamed)
    views = sum(x.numel() for x in streamed.keys + streamed.values) * 4
    assert held_bytes(streamed) > 2 * views  # room for moving, sinks not turned, cosines and sines
    assert CachedReader(MODEL, streamed).bytes == held_bytes(streamed)


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="way='all' is none of dense"):
        reader(MODEL, "all")
    with pytest.raises(ValueError, match="way='all' is none of dense"):
        cost("all", 3, 3)
    with pytest.raises(ValueError, match="size=0"):
        cost("dense", 3, 0)
    with pytest.raises(ValueError, match="tokens=-1"):
        cost("dense", -1, 3)
    with pytest.raises(ValueError, match="size=0"):
        Recomputing(MODEL, 0)
    with pytest.raises(ValueError, match=r"ids must be a non-empty \[B, T\]"):
        reader(MODEL, "window").read(IDS[0])
