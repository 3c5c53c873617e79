"""The key and value cache of a decoder, explicit: made by the caller, passed to the model.

    cache = KVCache()
    logits = model(prompt, cache=cache)        # prefill: the cache holds the prompt
    logits = model(next_ids, cache=cache)      # decode: one or more new tokens

Feeding the tokens in any chunks gives the logits of feeding them at once (to rounding). Other
caches (windows, eviction, quantized, paged) are objects with the same two names. One that has an
attribute ``keeps_raw_keys = True`` is given the keys before the rotary embedding, and rotates
what it returns itself: `efflib.attention.streaming` chooses positions that way.
"""

from typing import Protocol

import torch
from torch import Tensor


class Cache(Protocol):
    """What the model needs of a cache."""

    @property
    def length(self) -> int:
        """The position of the next token: how many tokens have been seen.

        More than the keys that are kept, where a cache evicts, unless it chooses positions.
        """
        ...

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Take a layer's new keys and values [B, Hkv, T, d], already rotated; return those to
        attend to [B, Hkv, S, d], of which the new ones are the last T."""
        ...


class KVCache:
    """The keys and values of every token seen, per layer, grown by concatenation."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []  # per layer [B, Hkv, S, d]
        self.values: list[Tensor] = []

    @property
    def length(self) -> int:
        """How many tokens have been seen: the position of the next one."""
        return self.keys[0].shape[2] if self.keys else 0

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add T new keys and values [B, Hkv, T, d]; return all of them [B, Hkv, S + T, d]."""
        if layer == len(self.keys):
            self.keys.append(k)
            self.values.append(v)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], k], dim=2)
            self.values[layer] = torch.cat([self.values[layer], v], dim=2)
        return self.keys[layer], self.values[layer]

    def truncate(self, length: int) -> None:
        """Forget every token from position `length` on."""
        self.keys = [k[:, :, :length] for k in self.keys]
        self.values = [v[:, :, :length] for v in self.values]

    def reorder(self, rows: Tensor) -> None:
        """Row i of the batch becomes what row ``rows[i]`` was; rows [B'] may repeat and drop."""
        self.keys = [k[rows] for k in self.keys]
        self.values = [v[rows] for v in self.values]
