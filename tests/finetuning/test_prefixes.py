"""Prefixes: numbers under grouped heads, and prompts as prefixes."""

import pytest
import torch
from small_llama import batches, llama

from efflib.finetuning.lora import trainable_parameters
from efflib.finetuning.prefixes import (
    PrefixModel,
    prefix_cache,
    prefix_numbers,
    prefix_of,
    reparametrized_numbers,
)
from efflib.finetuning.prompts import PromptModel, prompt_of_words
from efflib.finetuning.training import finetune
from efflib.models.config import LlamaConfig

IDS = torch.cat(batches(2))


def a_prefix(n=3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 2, 2, n, 8, generator=generator).to(dtype)  # L, 2, Hkv, n, d


def test_numbers_are_those_of_grouped_heads():
    model = llama()
    prefix = a_prefix(5)
    assert prefix_numbers(model.config, 5) == prefix.numel() == 5 * 2 * 2 * 2 * 8
    assert trainable_parameters(PrefixModel(model, prefix)) == prefix.numel()
    sizes = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    llama3 = LlamaConfig(128_256, 4096, 14_336, 32, **sizes)
    assert prefix_numbers(llama3, 1) == 65_536 == 16 * 4096  # of H heads it would be 262,144
    assert prefix_numbers(llama3, 0) == 0
    mlp = torch.nn.Sequential(torch.nn.Linear(16, 7), torch.nn.Linear(7, 2 * 2 * 16))
    own = 5 * 16 + sum(p.numel() for p in mlp.parameters())
    assert reparametrized_numbers(model.config, 5, 7) == own


@torch.no_grad()
def test_a_prompt_is_a_prefix():
    model = llama(torch.float64)
    prompt = prompt_of_words(model, 6)
    cache = prefix_cache([prefix_of(model, prompt)] * len(IDS))
    assert cache.length == 6
    right = PromptModel(llama(torch.float64), prompt)(IDS)
    torch.testing.assert_close(model(IDS, cache=cache), right, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_every_row_has_its_own_and_decoding_goes_on():
    model = llama(torch.float64)
    prefixes = [a_prefix(seed=i) for i in range(4)]
    cache = prefix_cache(prefixes)
    first, last = model(IDS[:, :-1], cache=cache), model(IDS[:, -1:], cache=cache)
    logits = torch.cat([first, last], 1)
    for row, prefix, ids in zip(logits, prefixes, IDS, strict=True):
        alone = model(ids[None], cache=prefix_cache([prefix]))[0]
        torch.testing.assert_close(row, alone, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_prefixes_are_what_attention_reads():
    """Layer 0, one query, by hand: softmax over prefix and text."""
    model = llama(torch.float64)
    prefix = a_prefix(3)
    seen = {}

    def attention(q, k, v, mask):
        seen.setdefault("k", k), seen.setdefault("v", v)
        seen.setdefault("mask", mask)
        return torch.zeros_like(q)

    model.set_attention(attention)
    model(IDS[:1, :4], cache=prefix_cache([prefix]))
    assert torch.equal(seen["k"][0, :, :3], prefix[0, 0]) and seen["k"].shape[2] == 7
    assert torch.equal(seen["v"][0, :, :3], prefix[0, 1])
    assert seen["mask"].tolist() == [[j < 4 + i for j in range(7)] for i in range(4)]


def test_a_prefix_is_trained_and_nothing_else():
    start = prefix_of(llama(), prompt_of_words(llama(), 4))
    after, losses = finetune(PrefixModel(llama(), start), batches(1) * 40, 3e-2)
    assert losses[-1] < losses[0] - 0.1
    base = llama().state_dict()
    assert all(torch.equal(after.base.state_dict()[n], t) for n, t in base.items())
    assert not torch.equal(after.prefix[1, 1], start[1, 1])


def test_what_is_refused():
    with pytest.raises(ValueError, match="no prefix"):
        prefix_cache([])
    with pytest.raises(ValueError, match=r"prefixes\[1\] is \(2, 2, 2, 4, 8\)"):
        prefix_cache([a_prefix(3), a_prefix(4)])
    with pytest.raises(ValueError, match="n=-1"):
        prefix_numbers(llama().config, -1)
