"""Caches that keep few tokens: rules, positions, memory, and the two ways to read a text."""

import math

import pytest
import torch

from efflib.attention import eviction, oracle
from efflib.attention.eviction import EvictingCache, KeptTokens, Rule, rule, survivors
from efflib.attention.maps import recorded
from efflib.attention.streaming import StreamingCache, stream_logits
from efflib.models.config import LlamaConfig
from efflib.models.llama import Llama


def llama(heads=4, kv_heads=2):
    torch.manual_seed(0)
    c = LlamaConfig(50, 32, 48, 3, heads, kv_heads, 8)
    return Llama(c).eval()


def steps(T, B=2, H=4, heads=2, d=8, seed=0):
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(B, H, T, d, generator=g, dtype=torch.float64)
    k, v = (torch.randn(B, heads, T, d, generator=g, dtype=torch.float64) for _ in range(2))
    return q, k, v


def test_with_room_for_all_it_is_the_model():
    model, ids = llama(), torch.randint(0, 50, (2, 20))
    for name in eviction.NAMES:
        cache = EvictingCache(30, rule(name, 30))
        torch.testing.assert_close(
            eviction.evicted_logits(model, ids, cache, chunk=7), model(ids), atol=1e-5, rtol=1e-5
        )
        assert cache.length == 20


def test_one_pass_is_reading_token_by_token():
    model, ids = llama(), torch.randint(0, 50, (2, 24))
    for name in ("recent", "sinks", "random", "h2o", "tova"):
        made = rule(name, 6)
        slow = eviction.evicted_logits(model, ids, EvictingCache(6, made))
        with torch.no_grad(), eviction.attending(model, oracle.in_one_pass(6, made)):
            fast = model(ids)
        torch.testing.assert_close(fast, slow, atol=1e-5, rtol=1e-5)


def test_the_model_has_its_own_attention_back():
    model = llama()
    before = [layer.self_attn.attention for layer in model.model.layers]
    with pytest.raises(RuntimeError), eviction.attending(model, lambda *a: 1 / 0):
        raise RuntimeError
    assert [layer.self_attn.attention for layer in model.model.layers] == before


def test_positions_in_the_cache_are_those_of_the_streaming_cache():
    """Sinks + recent with re-turned keys: the same as lab 7's cache, which sees one token less."""
    model, ids = llama(), torch.randint(0, 50, (1, 30))
    theta = model.config.rope_theta
    own = EvictingCache(7, Rule(sinks=2, recent=5), theta=theta)
    other = StreamingCache(8, range(2), theta)
    torch.testing.assert_close(
        eviction.evicted_logits(model, ids, own),
        stream_logits(model, ids, other),
        atol=1e-4,
        rtol=1e-4,
    )
    assert own.next_position == 7


def test_mass_of_chunks_is_that_of_tokens_while_nothing_leaves():
    q, k, v = steps(9)
    for decay in (0.0, 0.5, 1.0):
        masses = []
        for sizes in ([9], [1] * 9, [4, 3, 2]):
            kept = KeptTokens(9, Rule(decay=decay))
            for part in zip(*(x.split(sizes, 2) for x in (q, k, v)), strict=True):
                kept.step(*part)
            masses.append(kept.mass)
        torch.testing.assert_close(masses[0], masses[1])
        torch.testing.assert_close(masses[0], masses[2])


def test_every_query_gives_one():
    q, k, v = steps(12)
    kept = KeptTokens(12, Rule())
    kept.step(q, k, v)
    torch.testing.assert_close(kept.mass.sum(), torch.tensor(2.0 * 4 * 12, dtype=torch.float64))


def test_heads_choose_for_themselves_and_a_layer_together():
    q, k, v = steps(40)
    alone, together = (KeptTokens(8, Rule(recent=2), per=per) for per in ("head", "layer"))
    for kept in (alone, together):
        for part in zip(*(x.split(1, 2) for x in (q, k, v)), strict=True):
            kept.step(*part)
    assert not torch.equal(alone.positions[:, 0], alone.positions[:, 1])
    assert torch.equal(together.positions[:, 0], together.positions[:, 1])
    assert (alone.positions.diff(dim=-1) > 0).all()


def test_recent_zero_guards_nobody():
    score, at = torch.tensor([[3.0, 2.0, 1.0, 0.0]]), torch.arange(4)[None]
    assert survivors(score, at, 2, 0, 0).tolist() == [[0, 1]]
    assert survivors(score, at, 2, 0, 1).tolist() == [[0, 3]]
    assert survivors(torch.zeros(1, 4), at, 2).tolist() == [[2, 3]]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_memory_is_that_of_size_tokens(size):
    kept = KeptTokens(size, rule("h2o", size))
    for seed in range(30):
        kept.step(*(x.float() for x in steps(3, seed=seed)))
    for t in (kept.keys, kept.values, kept.mass, kept.positions):
        assert t.untyped_storage().nbytes() == t.nbytes and t.shape[2] == size


def test_bfloat16_keeps_its_dtype_and_counts_in_float32():
    kept = KeptTokens(4, Rule())
    out = kept.step(*(x.bfloat16() for x in steps(9)))
    assert out.dtype == kept.keys.dtype == torch.bfloat16 and kept.mass.dtype == torch.float32


@pytest.mark.parametrize(
    "call",
    [
        lambda: rule("h2o", 0),
        lambda: rule("heavy", 4),
        lambda: KeptTokens(3, Rule(sinks=2, recent=2)),
        lambda: KeptTokens(3, Rule(decay=1.5)),
        lambda: KeptTokens(3, Rule(), per="row"),
        lambda: EvictingCache(0, Rule()),
        lambda: survivors(torch.zeros(3), torch.arange(3), 2, sinks=-1),
    ],
)
def test_what_does_not_fit_is_refused(call):
    with pytest.raises(ValueError):
        call()


def test_the_oracle_looks_at_later_queries_only():
    model, ids = llama(), torch.randint(0, 50, (1, 16))
    (p, *_), futures = (
        recorded(model, ids, take) for take in (lambda p: p, lambda p: oracle.future_mass(p, 2))
    )
    right = torch.zeros_like(futures[0])
    for t in range(16):
        right[:, :, t, : t + 1] = p[:, :, t + 1 :].sum(2).view(1, 2, 2, 16).sum(2)[..., : t + 1]
    torch.testing.assert_close(futures[0], right, atol=1e-5, rtol=1e-5)
    for horizon in (0, 1, 5, 99):
        short = oracle.future_mass(p, 2, horizon)
        assert (short <= futures[0] + 1e-5).all()
    torch.testing.assert_close(oracle.future_mass(p, 2, 99), futures[0])


def test_no_rule_covers_more_than_the_best():
    q, k, _ = steps(30, B=1)
    scores = q @ k.repeat_interleave(2, 1).transpose(-1, -2) / math.sqrt(8)
    p = scores.masked_fill(torch.ones(30, 30).triu(1) > 0, -torch.inf).softmax(-1)
    best = oracle.best_mass(p, 6)
    for name in eviction.NAMES:
        kept = KeptTokens(5, rule(name, 5))
        for t, part in enumerate(zip(*(x.split(1, 2) for x in (q, k, k)), strict=True)):
            kept.append(*part[1:])
            there = kept.positions.repeat_interleave(2, 1)
            covered = p[:, :, t].gather(2, there).sum(-1)
            assert (covered <= best[:, :, t] + 1e-9).all()
            kept.attend(part[0], kept.keys, kept.values, torch.ones(1, kept.keys.shape[2]) > 0)
