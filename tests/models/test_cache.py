"""The plain cache: what it returns, how often it copies, and what it refuses."""

import pytest
import torch

from efflib.attention.streaming import StreamingCache
from efflib.models import KVCache
from efflib.quantization.kv import QuantizedKVCache


def entry(tokens: int, batch: int = 2, heads: int = 3, d: int = 8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(tokens)
    return torch.randn(batch, heads, tokens, d, generator=generator)


def test_what_was_appended_comes_back_and_buffers_are_rarely_replaced():
    cache, whole, places = KVCache(), [], set()
    for n in [5] + [1] * 300:
        whole.append(entry(n))
        k, v = cache.append(0, whole[-1], -whole[-1])
        places.add(k.data_ptr())
        assert torch.equal(k, torch.cat(whole, dim=2)) and torch.equal(v, -k)
    assert cache.length == 305 and len(places) <= 7  # 10, 20, 40, .. 320 and more
    assert torch.equal(cache.keys[0], torch.cat(whole, dim=2))
    assert torch.equal(cache.values[0], -cache.keys[0])


def test_a_token_after_truncation_overwrites():
    cache = KVCache()
    cache.append(0, entry(6), entry(6))
    cache.truncate(2)
    k, _ = cache.append(0, entry(3), entry(3))
    assert torch.equal(k, torch.cat([entry(6)[:, :, :2], entry(3)], dim=2))
    cache.truncate(9)  # nothing there
    assert cache.length == 5


def test_gradients_go_through():
    leaf, cache = entry(3).requires_grad_(), KVCache()
    cache.append(0, leaf, leaf)
    k, v = cache.append(0, 2 * leaf, leaf)
    with torch.no_grad():
        cache.append(0, entry(1), entry(1))
    (k.square().sum() + v.sum()).backward()
    torch.testing.assert_close(leaf.grad, 2 * leaf.detach() + 8 * leaf.detach() + 2)


def test_what_inference_mode_made_goes_on_outside():
    cache = KVCache()
    with torch.inference_mode():
        cache.append(0, entry(3), entry(3))
    k, _ = cache.append(0, entry(1), entry(1))
    assert torch.equal(k, torch.cat([entry(3), entry(1)], dim=2))


CACHES = [KVCache, lambda: StreamingCache(9, (0,), 100.0), lambda: QuantizedKVCache(4, 8, 8)]


@pytest.mark.parametrize("make", CACHES)
def test_keys_and_values_that_do_not_fit_are_refused(make):
    def refused(message, layer, k, v):
        with pytest.raises(ValueError, match=message):
            cache.append(layer, k, v)

    cache = make()
    refused(r"of one B, Hkv and T, got \(2, 3, 4, 8\) and \(2, 3, 5, 8\)", 0, entry(4), entry(5))
    refused(r"\(2, 3, 4, 8\) and \(1, 3, 4, 8\)", 0, entry(4), entry(4, 1))
    refused(r"must be \[B, Hkv, T, d\]", 0, entry(4)[0], entry(4)[0])
    refused("layer=1: the cache has 0", 1, entry(4), entry(4))
    cache.append(0, entry(4), entry(4))
    refused("layer=-1: the cache has 1", -1, entry(4), entry(4))
    refused("a cache serves one batch", 0, entry(1, batch=1), entry(1, batch=1))
    refused("a cache serves one batch", 0, entry(1, heads=2), entry(1, heads=2))
    k, _ = cache.append(0, entry(1), entry(1))
    assert k.shape == (2, 3, 5, 8)


def test_rows_that_are_not_in_the_batch_are_refused():
    cache = KVCache()
    cache.append(0, entry(4), entry(4))
    with pytest.raises(ValueError, match="rows must be from 0 to 1, got 0 to 2"):
        cache.reorder(torch.tensor([0, 2]))
    with pytest.raises(ValueError, match="rows must be integers"):
        cache.reorder(torch.tensor([0.0, 1.0]))


def test_negative_lengths_are_refused():
    cache = KVCache()
    cache.append(0, entry(4), entry(4))
    with pytest.raises(ValueError, match="length=-1 must be an integer of at least 0"):
        cache.truncate(-1)
    assert cache.length == 4


def test_a_path_is_kept_and_the_rest_forgotten():
    cache, generator = KVCache(), torch.Generator().manual_seed(0)
    k, v = (torch.randn(2, 3, 7, 4, generator=generator) for _ in range(2))
    for layer in range(2):
        cache.append(layer, k + layer, v - layer)
    cache.keep(3, torch.tensor([3, 6]))
    places = [0, 1, 2, 3, 6]
    assert cache.length == 5
    for layer in range(2):
        assert torch.equal(cache.keys[layer], k[:, :, places] + layer)
        assert torch.equal(cache.values[layer], v[:, :, places] - layer)
    with pytest.raises(ValueError, match="from 0 to 4, got 6"):
        cache.keep(3, torch.tensor([6]))
    with pytest.raises(ValueError, match="at least start=3, got 2"):
        cache.keep(3, torch.tensor([2]))
