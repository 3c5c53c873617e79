"""What a cache that knows the future would keep, and what no cache can beat.

    F[t, j] = sum of p[i, j] over queries t < i <= t + horizon      what key j is still good for
    best(t) = sum of the C largest p[t, j]                          of query t alone

p are the probabilities with everything kept.  A cache that evicts what has the least F is an oracle
of the future, greedy and not the best possible one: it adds up attention, and eviction changes what
later layers ask for.  `best` is a bound: C keys that are kept for all queries cannot give a query
more than its own best C.  Who keeps all and reads few may come near it (`selection`).
`in_one_pass` reads a text as a cache would, layer by layer, which is how oracles and rules are
compared.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.attention.eviction import KeptTokens, Rule
from efflib.checks import expect_dims, expect_whole


def in_one_pass(size: int, rule: Rule, per: str = "head", prompt: int = 1) -> Callable:
    """An attention in which every layer reads the whole text as a cache would, token by token.

    The model's other work is done at once for all tokens, so this is several times as fast as
    `evicted_logits`, and the same.  prompt: tokens that are read together first.
    """
    layers = iter(range(10**6))  # the model calls its layers in order, once

    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        kept = KeptTokens(size, rule, next(layers), per)
        sizes = [min(prompt, q.shape[2])] + [1] * (q.shape[2] - prompt)
        parts = zip(*(x.split(sizes, dim=2) for x in (q, k, v)), strict=True)
        return torch.cat([kept.step(*part) for part in parts], dim=2)

    return attention


def future_mass(p: Tensor, kv_heads: int, horizon: int | None = None) -> Tensor:
    """F[t, j]: what the queries t + 1 .. t + horizon give to key j <= t. [B, Hkv, T, T]

    p [B, H, T, T], with everything kept; horizon None: all later queries.
    """
    expect_dims("[B, H, T, T]", p=p)
    rows = p.unflatten(1, (kv_heads, -1)).sum(2)
    upto = F.pad(rows.double().cumsum(2), (0, 0, 1, 0))  # [.., T + 1, T]: of the queries before i
    n = p.shape[2]
    start = torch.arange(1, n + 1)
    stop = (start + (n if horizon is None else horizon)).clamp(max=n)
    return (upto[:, :, stop] - upto[:, :, start]).tril().to(p)


def oracle_rule(futures: list[Tensor], recent: int = 0) -> Rule:
    """Evict what later queries will look at least; futures: `future_mass` of every layer."""

    def score(mass: Tensor, positions: Tensor, layer: int) -> Tensor:
        now = int(positions.max())
        return futures[layer][:, :, now].gather(2, positions)

    return Rule(recent=recent, score=score)


def best_mass(p: Tensor, size: int) -> Tensor:
    """What the `size` best keys of every query get of it. [B, H, T]; p [B, H, T, S]"""
    expect_whole(1, size=size)
    return p.topk(min(size, p.shape[-1]), dim=-1).values.sum(-1)
