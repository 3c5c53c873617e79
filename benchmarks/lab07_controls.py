"""Caches and attention functions of lab07_tables.py: controls of what a first token is kept for."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from efflib.attention.sink_bias import sink_softmax
from efflib.attention.streaming import StreamingCache
from efflib.models import KVCache, Llama
from efflib.models.llama import AttentionFn, sdpa
from efflib.models.rotary import rotate

SIZE, BACK = 12, 60  # tokens in a cache; where constants are put back


class Changed(StreamingCache):
    """Keys or values of token 0 are zero, by `zero`: "k", "v" or both."""

    zero = "v"

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        pair = super().append(layer, k, v)
        first = (self.tokens[layer] == 0)[:, None]
        return tuple(
            x.masked_fill(first, 0.0) if name in self.zero else x
            for name, x in zip("kv", pair, strict=True)
        )


class NoKey(Changed):
    zero = "k"


class Neither(Changed):
    zero = "kv"


class PutBack(StreamingCache):
    """A window of all but one; from token BACK on, the constants of `<s>` stand before it."""

    def __init__(self, model: Llama, constants: KVCache) -> None:
        super().__init__(SIZE - 1, (), model.config.rope_theta, model.config.rope_scaling)
        self.constants = constants

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().append(layer, k, v)
        if self.layers[0].numbers()[-1] < BACK:
            return keys, values
        first = self.layers[layer].end - keys.shape[2]  # the slot of the oldest
        key, value = self.constants.keys[layer], self.constants.values[layer]
        key = rotate(key, torch.tensor([first - 1]), self.theta).expand(len(keys), -1, -1, -1)
        return torch.cat([key, keys], 2), torch.cat([value.expand_as(key), values], 2)


def with_functions(model: Llama, functions: Sequence[AttentionFn], run: Callable[[], Tensor]):
    """run() while each layer of the model has an attention function of its own."""
    for layer, function in zip(model.model.layers, functions, strict=True):
        layer.self_attn.attention = function
    try:
        return run()
    finally:
        model.set_attention(sdpa)


def noting(scores: list[Tensor]) -> AttentionFn:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        wide = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        scores.append((q @ wide.transpose(-1, -2))[:, :, 0] / math.sqrt(q.shape[-1]))
        return sdpa(q, k, v, mask)

    return attend


def smaller(factors: Tensor) -> list[AttentionFn]:
    """What each head gives, times a number; factors [layers, H]."""
    return [lambda q, k, v, m, f=f: sdpa(q, k, v, m) * f[:, None, None] for f in factors]


def resting(biases: Tensor) -> list[AttentionFn]:
    """A softmax with a bias; biases [layers, H]."""

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, b: Tensor) -> Tensor:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        s = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf)
        return sink_softmax(s, b) @ v

    return [lambda q, k, v, m, b=b: attend(q, k, v, m, b) for b in biases]
