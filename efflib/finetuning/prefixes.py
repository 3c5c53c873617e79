"""Prefix tuning: train keys and values that every layer finds in its cache before the text.

    K_l = [P_l,k ; W_k x]    V_l = [P_l,v ; W_v x]        P [L, 2, Hkv, n, d] is trained

These are n L 2 Hkv d numbers.  Heads that share keys (grouped queries) share prefixes as well, so
it is not n L 2 D where Hkv d < D.  Text begins at position n, as behind n tokens; the prefix's keys
lie in the cache as they are, already turned.

A soft prompt is a prefix: run it through the model once, keep the cache (`prefix_of`).  So prefixes
can do all that prompts can, a served prompt costs what its cache costs, and trained prefixes may
begin at real words.
Source: Li and Liang 2021 (arXiv:2101.00190), section 4; its P comes out of an MLP while it is
trained (`reparametrized_numbers`), of which only the result is kept.

Where implementations differ: peft stores P as [n, L 2 Hkv d] (`peft_prompts`); P-tuning v2 (Liu et
al. 2022, arXiv:2110.07602) is the same without the MLP.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_whole
from efflib.models.cache import KVCache
from efflib.models.config import LlamaConfig
from efflib.models.embedded import logits_of_vectors
from efflib.models.llama import Llama

LAYOUT = "[L, 2, Hkv, n, d]"


def prefix_numbers(config: LlamaConfig, n: int) -> int:
    """How many numbers a prefix of n has."""
    expect_whole(n=n)
    return n * config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim


def reparametrized_numbers(config: LlamaConfig, n: int, hidden: int) -> int:
    """What is trained where an MLP with this hidden size makes the prefix (Li and Liang, 4.3).

    An embedding [n, Hkv d] and two linear layers with biases, to all layers' keys and values.
    """
    expect_whole(n=n, hidden=hidden)
    width = config.num_key_value_heads * config.head_dim
    out = config.num_hidden_layers * 2 * width
    return n * width + (width * hidden + hidden) + (hidden * out + out)


def prefix_cache(prefixes: Sequence[Tensor]) -> KVCache:
    """A cache that holds prefixes[i] [L, 2, Hkv, n, d] in row i; gradients reach them.

    Raises ValueError if there is none, or they differ in shape.
    """
    if not len(prefixes):
        raise ValueError("there is no prefix: give one for every row")
    for i, prefix in enumerate(prefixes):
        expect_dims(LAYOUT, **{f"prefixes[{i}]": prefix})
        if prefix.shape != prefixes[0].shape:
            seen, right = tuple(prefix.shape), tuple(prefixes[0].shape)
            raise ValueError(f"prefixes[{i}] is {seen}, the first is {right}")
    rows, cache = torch.stack(list(prefixes)), KVCache()  # [B, L, 2, Hkv, n, d]
    for layer in range(rows.shape[1]):
        cache.append(layer, rows[:, layer, 0], rows[:, layer, 1])
    return cache


def prefix_of(model: Llama, prompt: Tensor) -> Tensor:
    """The prefix [L, 2, Hkv, n, d] that does what a soft prompt [n, D] does."""
    expect_dims("[n, D]", prompt=prompt)
    cache = KVCache()
    logits_of_vectors(model, prompt[None], cache)
    both = zip(cache.keys, cache.values, strict=True)
    return torch.stack([torch.stack([k[0], v[0]]) for k, v in both])


class PrefixModel(nn.Module):
    """A frozen Llama with one trained prefix [L, 2, Hkv, n, d] in every layer's cache."""

    def __init__(self, model: Llama, prefix: Tensor) -> None:
        super().__init__()
        self.base = model.requires_grad_(False)
        self.prefix = nn.Parameter(prefix.detach().clone())

    def forward(self, ids: Tensor) -> Tensor:
        """[B, T] -> [B, T, V]"""
        return self.base(ids, cache=prefix_cache([self.prefix] * len(ids)))
