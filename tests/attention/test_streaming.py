"""Streaming caches against brute force: every query alone, with its set of keys and positions
written out from the definition."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.attention.streaming import (
    StreamingCache,
    recomputed_logits,
    stream_logits,
    survivors,
)
from efflib.models import KVCache, Llama, LlamaConfig
from efflib.models.rotary import RopeScaling, rotate

THETA = 100.0  # small, so that positions matter within a few tokens
CONFIG = LlamaConfig(
    vocab_size=31,
    hidden_size=24,
    intermediate_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    rope_theta=THETA,
)


def tiny(seed: int = 0) -> Llama:
    generator = torch.Generator().manual_seed(seed)
    model = Llama(CONFIG).eval().double()
    for p in model.parameters():
        if p.ndim == 2:
            p.data = torch.randn(p.shape, generator=generator).double() * 1.5 / p.shape[1] ** 0.5
    return model


MODEL = tiny()


def ids_of(seed: int, batch: int, length: int) -> torch.Tensor:
    return torch.randint(31, (batch, length), generator=torch.Generator().manual_seed(seed))


def visible(chunks, size, pinned):
    """For every token of the text, the tokens its query sees, in order: the definition."""
    seen, kept, start = [], [], 0
    for n in chunks:
        fixed = [t for t in kept if t in pinned]
        others = [t for t in kept if t not in pinned]
        room = max(0, size - n - len(fixed))
        kept = sorted(fixed + others[len(others) - min(room, len(others)) :])
        new = list(range(start, start + n))
        seen += [kept + new[: i + 1] for i in range(n)]
        kept, start = kept + new, start + n
    return seen


@torch.no_grad()
def brute_force(model, ids, sees):
    """Token by token and key by key; the m-th key that a query sees is at position m."""
    h = model.model.embed_tokens(ids)
    for layer in model.model.layers:
        a, heads = layer.self_attn, (*ids.shape, -1, CONFIG.head_dim)
        x = layer.input_layernorm(h)
        q, k, v = (p(x).view(heads).transpose(1, 2) for p in (a.q_proj, a.k_proj, a.v_proj))
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        rows = []
        for t, keys in enumerate(sees):
            places = torch.arange(len(keys))
            query = rotate(q[:, :, t : t + 1], places[-1:], THETA)
            scores = query @ rotate(k[:, :, keys], places, THETA).transpose(-1, -2) / 8**0.5
            rows.append(scores.softmax(-1) @ v[:, :, keys])
        h = h + a.o_proj(torch.cat(rows, dim=2).transpose(1, 2).flatten(2))
        h = h + layer.mlp(layer.post_attention_layernorm(h))
    return model.lm_head(model.model.norm(h))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=7),
    st.integers(5, 12),
    st.sets(st.integers(0, 9), max_size=4),
    st.integers(0, 2**31),
)
def test_any_chunks_equal_brute_force(chunks, size, pinned, seed):
    ids, cache = ids_of(seed, 2, sum(chunks)), StreamingCache(size, pinned, THETA)
    with torch.no_grad():
        actual = torch.cat([MODEL(c, cache=cache) for c in ids.split(chunks, dim=1)], dim=1)
    # Logits of order 1 through three layers: some hundred roundings of 1e-16 each.
    expected = brute_force(MODEL, ids, visible(chunks, size, pinned))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def test_one_token_at_a_time_sees_the_sinks_and_the_most_recent():
    sees = visible([1] * 20, 6, {0, 1})
    assert sees[3] == [0, 1, 2, 3] and sees[19] == [0, 1, 16, 17, 18, 19]
    cache = StreamingCache(6, range(2), THETA)
    stream_logits(MODEL, ids_of(1, 1, 20), cache)
    assert all(t.tolist() == sees[19] for t in cache.tokens) and cache.length == 6
    assert all(k.shape == (1, 2, 6, 8) for k in cache.keys + cache.values)


def test_a_window_equals_a_band_mask_with_the_positions_of_the_text():
    ids = ids_of(2, 2, 25)
    i, j = torch.arange(25)[:, None], torch.arange(25)
    with torch.no_grad():
        expected = MODEL(ids, mask=(j <= i) & (j > i - 7))
    actual = stream_logits(MODEL, ids, StreamingCache(7, (), THETA))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def test_large_enough_for_everything_is_the_plain_cache():
    ids = ids_of(3, 2, 15)
    plain = stream_logits(MODEL, ids, KVCache())
    for pinned in ((), range(4)):
        actual = stream_logits(MODEL, ids, StreamingCache(15, pinned, THETA))
        torch.testing.assert_close(actual, plain, rtol=0, atol=1e-10)


def test_positions_do_not_grow_with_the_text():
    cache = StreamingCache(6, range(2), THETA)
    for chunk in ids_of(4, 1, 60).split(1, dim=1):
        MODEL(chunk, cache=cache)
        assert cache.length <= 6


def test_recomputation_forgets_what_is_outside_the_window():
    ids, at = ids_of(5, 2, 20), torch.tensor([3, 10, 19])
    actual = recomputed_logits(MODEL, ids, 6, at)
    with torch.no_grad():
        short = MODEL(ids[:, :4])[:, -1]
    torch.testing.assert_close(actual[:, 0], short)
    changed = ids.clone()
    changed[:, :5] = (changed[:, :5] + 1) % 31
    again = recomputed_logits(MODEL, changed, 6, at)
    assert torch.equal(actual[:, 1:], again[:, 1:]) and not torch.equal(actual[:, 0], again[:, 0])
    # A cached window is not the same: its keys were made when older tokens could still be seen.
    cached = stream_logits(MODEL, ids, StreamingCache(6, (), THETA))[:, at]
    assert not torch.allclose(actual[:, 1:], cached[:, 1:])


def test_recomputation_with_the_first_token_sees_it_and_the_most_recent():
    ids = ids_of(6, 2, 20)
    actual = recomputed_logits(MODEL, ids, 6, torch.tensor([4, 19]), keep_first=True)
    with torch.no_grad():
        torch.testing.assert_close(actual[:, 0], MODEL(ids[:, :5])[:, -1])
        joined = torch.cat([ids[:, :1], ids[:, 15:]], dim=1)
        torch.testing.assert_close(actual[:, 1], MODEL(joined)[:, -1])


@given(st.integers(0, 12), st.sets(st.integers(0, 12)), st.integers(-3, 12))
def test_survivors_are_pinned_or_recent(n, pinned, room):
    kept = survivors(torch.arange(n), pinned, room).tolist()
    fixed = [t for t in range(n) if t in pinned]
    assert kept == sorted(set(kept)) and set(fixed) <= set(kept)
    assert len(kept) == min(n, max(room, len(fixed)))
    dropped = [t for t in range(n) if t not in kept]
    recent = [t for t in kept if t not in pinned]
    assert not dropped or not recent or max(dropped) < min(recent)


@pytest.mark.parametrize("pinned", [(), (0, 1), (3, 40, 41)])
def test_a_long_text_moves_back_in_the_buffer_again_and_again(pinned):
    """Slots 0 .. 4 * 6: the 150 tokens pass through them several times."""
    ids, cache = ids_of(7, 2, 150), StreamingCache(6, pinned, THETA)
    ends, places = [], set()
    with torch.no_grad():
        parts = []
        for token in ids.split(1, dim=1):
            parts.append(MODEL(token, cache=cache))
            ends.append(cache.next_position)
            places.add(cache.keys[0].untyped_storage().data_ptr())
    assert max(ends) <= 24 and sum(b < a for a, b in zip(ends, ends[1:], strict=False)) > 6
    assert len(places) < 20  # a buffer serves many tokens
    expected = brute_force(MODEL, ids, visible([1] * 150, 6, set(pinned)))
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, rtol=0, atol=1e-10)


def test_values_are_those_of_the_tokens_also_where_the_buffer_moves_back():
    cache, ends = StreamingCache(3, (0,), THETA), [0]
    for t in range(40):
        x = torch.full((1, 1, 1, 2), float(t))
        _, seen = cache.append(0, x, x)
        assert seen[0, 0, :, 0].tolist() == ([0, t - 1, t] if t > 1 else list(range(t + 1)))
        ends.append(cache.next_position)
    assert ends != sorted(ends)  # it did move back


def test_the_positions_of_llama_3_1_are_those_of_the_plain_cache():
    config = dataclasses.replace(CONFIG, rope_scaling=RopeScaling(4.0, 1.0, 4.0, 16))
    model = Llama(config).eval().double()
    model.load_state_dict(MODEL.state_dict())
    ids = ids_of(8, 1, 40)
    expected = stream_logits(model, ids, KVCache())
    cache = StreamingCache(40, (0,), THETA, config.rope_scaling)
    torch.testing.assert_close(stream_logits(model, ids, cache), expected, rtol=0, atol=1e-10)
    assert (stream_logits(model, ids, StreamingCache(40, (0,), THETA)) - expected).abs().max() > 0.1


def test_what_does_not_fit_is_named():
    ids = ids_of(1, 1, 8)
    with pytest.raises(ValueError, match="size=0 must be an integer of at least 1"):
        StreamingCache(0, (), THETA)
    with pytest.raises(ValueError, match="theta=0 must be positive"):
        StreamingCache(4, (), 0)
    with pytest.raises(ValueError, match=r"pinned\[0\]=0.5 must be an integer"):
        StreamingCache(4, (0.5,), THETA)
    with pytest.raises(ValueError, match="pinned=2 must be token numbers"):
        StreamingCache(4, 2, THETA)
    with pytest.raises(ValueError, match=r"tokens must be \[S\], got \(1, 4\)"):
        survivors(torch.arange(4)[None], (), 3)
    with pytest.raises(ValueError, match="size=0"):
        recomputed_logits(MODEL, ids, 0, torch.tensor([3]))
    for at in ([8], [-1]):
        with pytest.raises(ValueError, match=f"at must be from 0 to 7, got {at[0]} to {at[0]}"):
            recomputed_logits(MODEL, ids, 4, torch.tensor(at))
    with pytest.raises(ValueError, match=r"ids must be a non-empty \[B, T\], got \(8,\)"):
        stream_logits(MODEL, ids[0], KVCache())


def test_a_cache_of_sinks_only_is_refused():
    with pytest.raises(ValueError, match=r"size=4.*\[0, 1, 2, 3\]"):
        StreamingCache(4, range(4), THETA)
