"""Reading a text without end: four ways behind one interface, and what each of them costs.

    reader.read(ids)   the next tokens of the text [B, T] -> logits after each of them [B, T, V]
    reader.forwarded   tokens that went through the model, for each row of the batch
    reader.scores      products of a query and a key, for each head of each layer
    reader.bytes       held between two calls

For a text of T tokens and a window of L <= T, exactly:

    way         tokens through the model     scores                           held, tokens
    dense       T                            T (T + 1) / 2                    T
    window      T                            T L - L (L - 1) / 2              L
    sinks       T                            the same                         L
    recompute   T L - L (L - 1) / 2          S(L) + (T - L) L (L + 1) / 2     L ids

    S(L) = L (L + 1) (L + 2) / 6              the windows that are not yet full

The lecture's T^2, T L and T L^2 are the scores without factors.  All work in the rest of the model
is per token, so it is the second column that recomputation pays L times.
Source: Xiao et al. 2023 (arXiv:2309.17453), figure 1.
"""

from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from efflib.attention.paged_streaming import PagedStreamingCache
from efflib.attention.streaming import StreamingCache
from efflib.checks import expect_dims, expect_whole
from efflib.models.cache import Cache, KVCache
from efflib.models.llama import Llama

Way = Literal["dense", "window", "sinks", "paged", "recompute"]
WAYS: tuple[Way, ...] = ("dense", "window", "sinks", "paged", "recompute")


class Cost(NamedTuple):
    forwarded: int
    scores: int


class Reader(Protocol):
    forwarded: int
    scores: int

    @property
    def bytes(self) -> int: ...

    def read(self, ids: Tensor) -> Tensor: ...


def held_bytes(cache: Cache) -> int:
    """Bytes of all that a cache holds: whole buffers, each once, room that is not used included."""
    held = getattr(cache, "buffers", None)
    held = cache.keys + cache.values if held is None else held
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
    return sum(storages.values())


class CachedReader:
    """Token by token through a cache: dense, window or sinks, as the cache is."""

    def __init__(self, model: Llama, cache: Cache) -> None:
        self.model, self.cache = model, cache
        self.forwarded = self.scores = 0

    @property
    def bytes(self) -> int:
        return held_bytes(self.cache)

    @torch.no_grad()
    def read(self, ids: Tensor) -> Tensor:
        """Logits [B, T, V] after each of ids [B, T]."""
        expect_dims("[B, T]", ids=ids)
        rows = []
        for token in ids.split(1, dim=1):
            rows.append(self.model(token, cache=self.cache))
            self.forwarded += 1
            self.scores += self.cache.length  # the query's own key included
        return torch.cat(rows, dim=1)


class Recomputing:
    """No cache of keys: the last `size` tokens, or the first and the last size - 1, every time."""

    def __init__(self, model: Llama, size: int, keep_first: bool = False) -> None:
        expect_whole(1, size=size)
        self.model, self.size, self.keep_first = model, size, keep_first
        self.first = self.last = None  # ids [B, 1], [B, <= size]
        self.forwarded = self.scores = 0

    @property
    def bytes(self) -> int:
        held = [t for t in (self.first, self.last) if t is not None]
        return sum(t.numel() * t.element_size() for t in held)

    @torch.no_grad()
    def read(self, ids: Tensor) -> Tensor:
        """Logits [B, T, V] after each of ids [B, T]: a pass over a window for every token."""
        expect_dims("[B, T]", ids=ids)
        rows = []
        for token in ids.split(1, dim=1):
            self.first = token if self.first is None else self.first
            last = token if self.last is None else torch.cat([self.last, token], dim=1)
            self.last = last[:, -self.size :].clone()
            window = self.last.clone()
            if self.keep_first:
                window[:, :1] = self.first  # of a text that is not yet longer, it is there already
            rows.append(self.model(window)[:, -1:])
            n = window.shape[1]
            self.forwarded += n
            self.scores += n * (n + 1) // 2
        return torch.cat(rows, dim=1)


def reader(model: Llama, way: Way, size: int = 256, sinks: int = 4, block_size: int = 16) -> Reader:
    """A fresh reader.  size: of the window, sinks included; "dense" needs none of the numbers.

    Raises ValueError for a way that is not in `WAYS`, and as the caches do.
    """
    c = model.config
    if way == "dense":
        return CachedReader(model, KVCache())
    if way == "window":
        return CachedReader(model, StreamingCache(size, (), c.rope_theta, c.rope_scaling))
    if way == "sinks":
        return CachedReader(model, StreamingCache(size, range(sinks), c.rope_theta, c.rope_scaling))
    if way == "paged":
        cache = PagedStreamingCache(size, sinks, block_size, c.rope_theta, c.rope_scaling)
        return CachedReader(model, cache)
    if way == "recompute":
        return Recomputing(model, size)
    raise ValueError(f"way={way!r} is none of {', '.join(WAYS)}")


def cost(way: Way, tokens: int, size: int) -> Cost:
    """What reading `tokens` tokens costs, by the formulas above, in closed form.

    Raises ValueError for a way that is not in `WAYS`, tokens below 0 or a size below 1.
    """
    expect_whole(tokens=tokens)
    expect_whole(1, size=size)
    if way not in WAYS:
        raise ValueError(f"way={way!r} is none of {', '.join(WAYS)}")
    if way == "dense":
        return Cost(tokens, tokens * (tokens + 1) // 2)
    L = min(size, tokens)  # of these windows the first L have 1, 2, .. L tokens
    seen = tokens * L - L * (L - 1) // 2
    if way != "recompute":
        return Cost(tokens, seen)
    growing = L * (L + 1) * (L + 2) // 6
    return Cost(seen, growing + (tokens - L) * L * (L + 1) // 2)
