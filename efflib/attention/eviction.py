"""Keeping few tokens: one cache with a rule that says who has to leave, and with it the memory.

    p[t, j]     what query t gives to key j, among the keys that are still there
    mass[j]  <- decay mass[j] + p[t, j]               summed over the query heads of a key head
    keep        the first `sinks` tokens of the text, the last `recent` ones, and of the others
                those with the largest score: their mass, or whatever a rule makes of it

    rule        sinks  recent    decay  score
    recent      0      size      -      -          a window
    sinks       4      size - 4  -      -          StreamingLLM's tokens
    random      0      size / 2  -      random     the control: old tokens at random
    h2o         0      size / 2  1      mass       heavy hitters: Zhang et al., "H2O" (2023)
    tova        0      0         0      mass       the newest row: Oren et al., "TOVA" (2024)

`oracle.oracle_rule` reads the attention of later queries, which no server has. Every key head keeps
tokens of its own, unless per="layer". A call appends its tokens, lets their queries see them and
all that is kept, and only then drops; so between two calls at most `size` tokens stand there.

Positions: by default keys stay turned as at their places in the text (H2O). With `theta` they are
kept as they came and turned by their places in the cache, as in `streaming`.

Where implementations differ: H2O's code adds up over the batch as well, and its mask saves no
memory; with recent = 0 its slice `[-0:]` takes all tokens for recent ones. A sum favours old
tokens, which more queries could look at; H2O leaves it so, and so does `mass`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from efflib.attention.maps import probabilities
from efflib.checks import expect_dims, expect_whole
from efflib.models.cache import expect_entry
from efflib.models.llama import Llama, causal_mask
from efflib.models.rotary import at_least_fp32, turn, turns

NAMES = ("recent", "sinks", "random", "h2o", "tova")
SINKS = 4  # of the rule "sinks"
NOISE = 65537  # entries of the table of the random rule, a prime
Score = Callable[[Tensor, Tensor, int], Tensor]


class Rule(NamedTuple):
    """Who may stay.  score(mass, positions, layer), all [B, Hkv, S]; None: the mass itself."""

    sinks: int = 0
    recent: int = 0
    decay: float = 1.0
    score: Score | None = None


def random_score(seed: int) -> Score:
    """Every token of every key head has a number of its own, drawn once."""
    noise = torch.rand(NOISE, generator=torch.Generator().manual_seed(seed))

    def score(mass: Tensor, positions: Tensor, layer: int) -> Tensor:
        row = torch.arange(positions.shape[0] * positions.shape[1]).view(*positions.shape[:2], 1)
        return noise.to(mass)[(positions + 4093 * row.to(positions) + 31 * layer) % NOISE]

    return score


def rule(name: str, size: int, seed: int = 0) -> Rule:
    """A rule by its name, as in the table above.  Raises ValueError for another name."""
    expect_whole(1, size=size)
    if name == "recent":
        return Rule(recent=size)
    if name == "sinks":
        return Rule(sinks=min(SINKS, size - 1), recent=size - min(SINKS, size - 1))
    if name == "random":
        return Rule(recent=size // 2, score=random_score(seed))
    if name == "h2o":
        return Rule(recent=size // 2)
    if name == "tova":
        return Rule(decay=0.0)
    raise ValueError(f"rule {name!r} is none of {', '.join(NAMES)}")


def survivors(score: Tensor, positions: Tensor, size: int, sinks: int = 0, recent: int = 0):
    """Places [..., min(S, size)] ascending of those that stay; score, positions [..., S].

    positions ascend; of equal scores the newer token stays.
    Raises ValueError unless size >= 1 and sinks + recent <= size.
    """
    expect_whole(1, size=size)
    expect_whole(sinks=sinks, recent=recent)
    if sinks + recent > size:
        raise ValueError(f"size={size} must hold sinks={sinks} and recent={recent}")
    tokens = score.shape[-1]
    if tokens <= size:
        return torch.arange(tokens, device=score.device).expand(score.shape)
    guarded = positions < sinks
    guarded[..., tokens - recent :] = True  # not [-recent:], which is everything for 0
    wanted = score.masked_fill(guarded, torch.inf).flip(-1)  # the newest first, then stable
    best = tokens - 1 - wanted.argsort(dim=-1, descending=True, stable=True)[..., :size]
    return best.sort(-1).values


def mass_of(p: Tensor, kv_heads: int, decay: float = 1.0) -> Tensor:
    """What every key got of the queries in p [B, H, T, S], the last one whole. [B, Hkv, S]"""
    ages = torch.arange(p.shape[2] - 1, -1, -1, device=p.device)
    weights = torch.where(ages == 0, 1.0, decay ** ages.double()).to(p)  # 0^0 is 1
    return torch.einsum("bhts,t->bhs", p, weights).unflatten(1, (kv_heads, -1)).sum(2)


class KeptTokens:
    """One layer: keys, values, mass and positions of at most `size` tokens a key head.

    theta: turn keys, which must come as they are, by their places in the cache.
    """

    def __init__(
        self, size: int, rule: Rule, layer: int = 0, per: str = "head", theta: float | None = None
    ) -> None:
        expect_whole(1, size=size)
        if per not in ("head", "layer"):
            raise ValueError(f"per={per!r} must be 'head' or 'layer'")
        if not 0 <= rule.decay <= 1:
            raise ValueError(f"decay={rule.decay} must be from 0 to 1")
        survivors(torch.zeros(1), torch.zeros(1), size, rule.sinks, rule.recent)
        self.size, self.rule, self.layer, self.per, self.theta = size, rule, layer, per, theta
        self.seen = 0
        self.keys = self.values = self.mass = self.positions = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add k, v [B, Hkv, T, d]; return all, the keys turned."""
        new = torch.arange(self.seen, self.seen + k.shape[2], device=k.device)
        new = new.expand(*k.shape[:2], -1)  # [B, Hkv, T]
        none = torch.zeros(k.shape[:3], dtype=at_least_fp32(k.dtype), device=k.device)
        if self.keys is None:
            self.keys, self.values, self.mass, self.positions = k, v, none, new
        else:
            pairs = ((self.keys, k), (self.values, v), (self.mass, none), (self.positions, new))
            parts = [torch.cat(pair, dim=2) for pair in pairs]
            self.keys, self.values, self.mass, self.positions = parts
        self.seen += k.shape[2]
        if self.theta is None:
            return self.keys, self.values
        places = torch.arange(self.keys.shape[2], device=k.device)
        return turn(self.keys, turns(places, k.shape[-1], self.theta, k.dtype)), self.values

    def drop(self, p: Tensor) -> None:
        """Count what the newest queries looked at, p [B, H, T, S]; keep `size` tokens."""
        heads, queries = self.keys.shape[1], p.shape[2]
        old = self.mass * self.rule.decay**queries
        self.mass = old + mass_of(p.to(self.mass), heads, self.rule.decay)
        if self.keys.shape[2] <= self.size:
            return
        score = self.rule.score or (lambda mass, positions, layer: mass)
        score = score(self.mass, self.positions, self.layer)
        if self.per == "layer":
            score = score.sum(1, keepdim=True).expand_as(score)
        stay = survivors(score, self.positions, self.size, self.rule.sinks, self.rule.recent)
        rows = stay[..., None]
        self.keys = self.keys.gather(2, rows.expand(-1, -1, -1, self.keys.shape[-1]))
        self.values = self.values.gather(2, rows.expand(-1, -1, -1, self.values.shape[-1]))
        self.mass, self.positions = self.mass.gather(2, stay), self.positions.gather(2, stay)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Attention of q [B, H, T, d] over what `append` returned; then some have to leave."""
        p = probabilities(q.to(at_least_fp32(q.dtype)), k.to(at_least_fp32(k.dtype)), mask)
        out = p.to(v.dtype) @ v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
        self.drop(p)
        return out

    def step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """T new tokens, one or more: append, attend, drop. [B, H, T, d]"""
        keys, values = self.append(k, v)
        return self.attend(q, keys, values, causal_mask(q.shape[2], keys.shape[2], q.device))


class EvictingCache:
    """`KeptTokens` for every layer of a model that reads with `evicting(model, cache)`."""

    def __init__(
        self, size: int, rule: Rule, per: str = "head", theta: float | None = None
    ) -> None:
        self.made = lambda layer: KeptTokens(size, rule, layer, per, theta)
        self.made(0)  # its errors now
        self.keeps_raw_keys = theta is not None
        self.layers: list[KeptTokens] = []
        self._at = 0

    @property
    def length(self) -> int:
        """How many tokens have been seen."""
        return self.layers[0].seen if self.layers else 0

    @property
    def next_position(self) -> int:
        """Where the next query stands: in the text, or behind what is kept."""
        if not self.keeps_raw_keys or not self.layers:
            return self.length
        return self.layers[0].keys.shape[2]

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add k, v [B, Hkv, T, d] to a layer.  Raises ValueError as `cache.expect_entry`."""
        expect_entry(layer, [kept.keys for kept in self.layers], k, v)
        if layer == len(self.layers):
            self.layers.append(self.made(layer))
        self._at = layer
        return self.layers[layer].append(k, v)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """The model's attention: of the layer that was appended to last."""
        return self.layers[self._at].attend(q, k, v, mask)

    def bytes(self) -> int:
        """What is kept: keys, values, mass and positions."""
        held = [(x.keys, x.values, x.mass, x.positions) for x in self.layers]
        return sum(t.nbytes for parts in held for t in parts)


@contextmanager
def attending(model: Llama, attention: Callable) -> Iterator[None]:
    """Within it the model's layers use this attention; afterwards their own again."""
    before = [layer.self_attn.attention for layer in model.model.layers]
    model.set_attention(attention)
    try:
        yield
    finally:
        for layer, own in zip(model.model.layers, before, strict=True):
            layer.self_attn.attention = own


@torch.no_grad()
def evicted_logits(model: Llama, ids: Tensor, cache: EvictingCache, chunk: int = 1) -> Tensor:
    """Logits [B, T, V] of ids [B, T], fed in chunks through a fresh cache."""
    expect_dims("[B, T]", ids=ids)
    with attending(model, cache.attention):
        return torch.cat([model(part, cache=cache) for part in ids.split(chunk, dim=1)], dim=1)
