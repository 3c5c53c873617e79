"""The key and value cache of a decoder, explicit: made by the caller, passed to the model.

    cache = KVCache()
    logits = model(prompt, cache=cache)        # prefill: the cache holds the prompt
    logits = model(next_ids, cache=cache)      # decode: one or more new tokens

Feeding the tokens in any chunks gives the logits of feeding them at once (to rounding). Other
caches (windows, eviction, quantized, paged) are objects with the same two names. One that chooses
positions itself has an attribute ``keeps_raw_keys = True``, so that it is given the keys before the
rotary embedding and returns them turned, and says in ``next_position`` where the next query stands:
see `efflib.attention.streaming`.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from efflib.checks import expect_whole, expect_within


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


def expect_entry(layer: int, held: Sequence[Tensor], k: Tensor, v: Tensor) -> None:
    """Raises ValueError unless k and v fit each other and what the layer holds already.

    held: keys of the layers so far; layer: one of them, or the next.
    """
    if not 0 <= layer <= len(held):
        raise ValueError(f"layer={layer}: the cache has {len(held)}, so the next is {len(held)}")
    if k.ndim != 4 or v.ndim != 4 or k.shape[:3] != v.shape[:3]:
        raise ValueError(
            "keys and values must be [B, Hkv, T, d] of one B, Hkv and T, got "
            f"{tuple(k.shape)} and {tuple(v.shape)}"
        )
    if layer == len(held):
        return
    old = held[layer].shape
    if (*k.shape[:2], k.shape[3]) != (*old[:2], old[3]):
        raise ValueError(
            f"the cache holds keys [B, Hkv, S, d] with B, Hkv, d = {old[0]}, {old[1]}, {old[3]}, "
            f"to which {tuple(k.shape)} cannot be added: a cache serves one batch of one model"
        )


def put(buffer: Tensor, at: int, new: Tensor) -> Tensor:
    """The buffer [B, Hkv, R, d] with new [B, Hkv, T, d] from slot `at` on, in place if possible.

    A buffer that a gradient goes through is copied, as is one of inference mode outside of it.
    """
    end = at + new.shape[2]
    frozen = buffer.is_inference() and not torch.is_inference_mode_enabled()
    if frozen or buffer.requires_grad or (new.requires_grad and torch.is_grad_enabled()):
        return torch.cat([buffer[:, :, :at], new, buffer[:, :, end:]], dim=2)
    buffer[:, :, at:end] = new
    return buffer


class KVCache:
    """The keys and values of every token seen, per layer.

    They lie in buffers that a longer one replaces when they are full, with room for as many tokens
    again: so adding a token copies no more than that token, but for one time in many.
    """

    def __init__(self) -> None:
        self._keys: list[Tensor] = []  # per layer [B, Hkv, room, d]
        self._values: list[Tensor] = []
        self._lengths: list[int] = []

    @property
    def keys(self) -> list[Tensor]:
        """Per layer [B, Hkv, S, d]: views, until the next call that changes the cache."""
        return [k[:, :, :n] for k, n in zip(self._keys, self._lengths, strict=True)]

    @property
    def values(self) -> list[Tensor]:
        """As `keys`."""
        return [v[:, :, :n] for v, n in zip(self._values, self._lengths, strict=True)]

    @property
    def length(self) -> int:
        """How many tokens have been seen: the position of the next one."""
        return self._lengths[0] if self._lengths else 0

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add T new keys and values [B, Hkv, T, d]; return all of them [B, Hkv, S + T, d].

        Raises ValueError as `expect_entry`.
        """
        expect_entry(layer, self._keys, k, v)
        if layer == len(self._keys):
            self._keys.append(k[:, :, :0])
            self._values.append(v[:, :, :0])
            self._lengths.append(0)
        start, end = self._lengths[layer], self._lengths[layer] + k.shape[2]
        for buffers, x in ((self._keys, k), (self._values, v)):
            if end > buffers[layer].shape[2]:
                room = x.new_empty(*x.shape[:2], 2 * end - start, x.shape[3])
                buffers[layer] = torch.cat([buffers[layer][:, :, :start], room], dim=2)
            buffers[layer] = put(buffers[layer], start, x)
        self._lengths[layer] = end
        return self._keys[layer][:, :, :end], self._values[layer][:, :, :end]

    def truncate(self, length: int) -> None:
        """Forget every token from position `length` on.  Raises ValueError if that is negative."""
        expect_whole(length=length)
        self._lengths = [min(n, length) for n in self._lengths]

    def keep(self, start: int, positions: Tensor) -> None:
        """Of what is behind `start` only these positions [n]: token start + i was positions[i].

        For a path of a token tree. Keys stay turned as they were, so a token must have been read
        at the position that it now gets.
        Raises ValueError for positions that are not in the cache, from `start` on.
        """
        expect_whole(start=start)
        expect_within(positions=positions, stop=self.length)
        if len(positions) and int(positions.min()) < start:
            raise ValueError(f"positions must be at least {start=}, got {int(positions.min())}")
        for buffers in (self._keys, self._values):
            for layer, buffer in enumerate(buffers):
                buffers[layer] = put(buffer, start, buffer[:, :, positions])
        self._lengths = [min(start, n) + len(positions) for n in self._lengths]

    def reorder(self, rows: Tensor) -> None:
        """Row i of the batch becomes what row ``rows[i]`` was; rows [B'] may repeat and drop.

        Raises ValueError for rows that are no integers or not in the batch.
        """
        expect_within(rows=rows, stop=len(self._keys[0]) if self._keys else 0)
        self._keys = [k[rows] for k in self._keys]
        self._values = [v[rows] for v in self._values]
