"""Pooled and repeated heads: which head shares with which, and that repeating is exact."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from efflib import zoo
from efflib.attention.heads import pool_heads, repeat_heads, repeat_kv, with_kv_heads
from efflib.models.cache import KVCache
from efflib.models.llama import Llama, LlamaConfig, sdpa


def tiny(kv_heads=4, bias=False):
    torch.manual_seed(0)
    config = LlamaConfig(50, 32, 44, 2, 4, kv_heads, 8, attention_bias=bias)
    model = Llama(config).eval()
    for p in model.parameters():
        p.data += 0.1 * torch.randn(p.shape)
    return model


IDS = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(1))


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4))
def test_pooling_is_a_loop_over_groups(groups, share, d, columns):
    heads = groups * share
    weight = torch.randn(heads * d, columns, dtype=torch.float64)
    pooled = pool_heads(weight, heads, groups)
    for g in range(groups):
        for i in range(d):
            rows = [(g * share + j) * d + i for j in range(share)]
            torch.testing.assert_close(pooled[g * d + i], weight[rows].mean(0))
    first = pool_heads(weight, heads, groups, "first")
    assert torch.equal(first, weight.view(groups, share, d, columns)[:, 0].reshape(-1, columns))
    assert torch.equal(
        pool_heads(repeat_heads(pooled, groups, share), heads, groups, "first"), pooled
    )


def test_repeated_keys_are_what_grouped_attention_reads():
    g = torch.Generator().manual_seed(0)
    q = torch.randn(2, 6, 3, 8, generator=g)
    k, v = torch.randn(2, 2, 2, 5, 8, generator=g)
    mask = torch.ones(3, 5, dtype=torch.bool)
    repeated = sdpa(q, repeat_kv(k, 3), repeat_kv(v, 3), mask)
    torch.testing.assert_close(sdpa(q, k, v, mask), repeated)


@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_more_heads_are_the_same_function_and_pool_back(bias):
    model = tiny(2, bias)
    more = with_kv_heads(model, 4)
    assert more.config.num_key_value_heads == 4 and model.config.num_key_value_heads == 2
    torch.testing.assert_close(more(IDS), model(IDS))
    back = with_kv_heads(more, 2)
    for (name, p), (_, q) in zip(back.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(p, q), name
    cache = KVCache()
    back(IDS, cache=cache)
    assert cache.keys[0].shape == (2, 2, 9, 8)


@torch.no_grad()
def test_of_equal_heads_the_mean_is_the_same_function():
    model = tiny(1)
    equal = with_kv_heads(model, 4)
    for kv_heads in (1, 2):
        for how in ("mean", "first"):
            torch.testing.assert_close(with_kv_heads(equal, kv_heads, how)(IDS), model(IDS))


def test_nothing_of_the_model_changes():
    model = tiny()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    pooled = with_kv_heads(model, 1)
    with torch.no_grad():
        for p in pooled.parameters():
            p.zero_()
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    assert [m.self_attn.config.num_key_value_heads for m in pooled.model.layers] == [1, 1]


def test_bfloat16_is_averaged_in_float32():
    weight = torch.tensor([[1.0], [1.0], [1.0078125]]).bfloat16()  # three heads of one row
    exact = weight.float().mean().bfloat16()
    assert pool_heads(weight, 3, 1).item() == exact.item()


@pytest.mark.slow
def test_fewer_heads_cost_the_zoos_model_something():
    model = zoo.load("target")
    loss = [zoo.perplexity(m, "code", tokens=1024, context=64, stride=64) for m in (
        model, with_kv_heads(model, 3), with_kv_heads(model, 1))]  # fmt: skip
    assert loss[0] < loss[1] < loss[2]


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="kv_heads=3 must divide the 4 query heads"):
        with_kv_heads(tiny(), 3)
    with pytest.raises(ValueError, match="2 groups must divide 3 heads"):
        pool_heads(torch.zeros(6, 1), 3, 2)
    with pytest.raises(ValueError, match="got 'last'"):
        pool_heads(torch.zeros(6, 1), 3, 1, "last")
    with pytest.raises(ValueError, match="4 heads must divide the 6 rows"):
        repeat_heads(torch.zeros(6, 1), 4, 1)
    with pytest.raises(ValueError, match="times=0 must be"):
        repeat_kv(torch.zeros(1, 1, 1, 1), 0)
