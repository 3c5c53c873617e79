"""Reading few tokens and keeping all: pages of keys, chosen anew by every query.

A page is `page` neighbouring keys, and beside it stand the least and the largest value of each of
their coordinates.  No key k of the page has a larger product with q than

    u(q) = sum_i max(q_i low_i, q_i high_i) / sqrt(d)  >=  q . k / sqrt(d)

for each term is at most the larger of its two ends.  Read the `pages` with the largest u, always
the newest among them; what is read is their keys and values and the two summaries of every page.
Nothing leaves, so a token that no query wanted for long can still be found.
Source: Tang et al., "Quest" (2024), section 3.

The bound never misses by itself, but a page with a high bound need not hold a large product: a
fixed number of pages may lack the largest.  `find_largest` reads on until no bound is above what it
has, and then it is certain (branch and bound, as old as 1960).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from efflib.attention.maps import probabilities
from efflib.checks import expect_dims, expect_whole


class Cost(NamedTuple):
    """Numbers (not bytes) a key head of one layer keeps and reads for one query."""

    kept: int
    read: int


def page_boxes(k: Tensor, page: int) -> tuple[Tensor, Tensor]:
    """(low, high) [B, Hkv, P, d] of k [B, Hkv, S, d]; the last page may be shorter."""
    expect_dims("[B, Hkv, S, d]", k=k)
    expect_whole(1, page=page)
    parts = k.split(page, dim=2)
    low, high = (torch.stack([f(x, 2) for x in parts], 2) for f in (torch.amin, torch.amax))
    return low, high


def page_bounds(q: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """u of every query and page [B, H, T, P]; q [B, H, T, d], low and high [B, Hkv, P, d]."""
    low, high = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (low, high))
    down, up = q.clamp(max=0), q.clamp(min=0)
    # max(q l, q h) is q h where q > 0 and q l where q < 0
    return (up @ high.transpose(-1, -2) + down @ low.transpose(-1, -2)) * q.shape[-1] ** -0.5


def chosen_pages(bounds: Tensor, pages: int, newest: Tensor) -> Tensor:
    """True for the pages that a query reads [B, H, T, P]: `pages` of them, with its newest one.

    bounds [B, H, T, P]; newest [T]: the page of each query's own token; later ones are not there.
    """
    expect_whole(1, pages=pages)
    number = torch.arange(bounds.shape[-1], device=bounds.device)
    wanted = bounds.masked_fill(number == newest[:, None], torch.inf)
    wanted = wanted.masked_fill(number > newest[:, None], -torch.inf)
    order = wanted.flip(-1).argsort(dim=-1, descending=True, stable=True)
    first = bounds.shape[-1] - 1 - order[..., :pages]  # of equal bounds the newer page
    read = torch.zeros_like(bounds, dtype=torch.bool).scatter(-1, first, True)
    return read & (number <= newest[:, None])


def selected_attention(page: int, pages: int, reads: list[Tensor] | None = None) -> Callable:
    """An attention whose queries read `pages` pages each; for all tokens of a text at once.

    The page of a query's own token is always read, so that a page is summed up when it is full.
    reads: gets the keys that were read, [B, H, T], of every call.
    """

    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        at = torch.arange(k.shape[2] - q.shape[2], k.shape[2], device=q.device) // page  # [T]
        read = chosen_pages(page_bounds(q, *page_boxes(k, page)), pages, at)
        seen = read.repeat_interleave(page, dim=-1)[..., : k.shape[2]] & mask  # [B, H, T, S]
        if reads is not None:
            reads.append(seen.sum(-1))
        return probabilities(q, k, seen) @ v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)

    return attention


def top_keys_attention(size: int) -> Callable:
    """An attention whose queries read their own best `size` keys: the oracle of reading few."""

    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        p = probabilities(q, k, mask)
        best = p.topk(min(size, p.shape[-1]), dim=-1).indices
        seen = torch.zeros_like(p, dtype=torch.bool).scatter(-1, best, True) & mask
        return probabilities(q, k, seen) @ v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)

    return attention


def find_largest(q: Tensor, low: Tensor, high: Tensor, read: Callable) -> tuple[int, int]:
    """(number of the key with the largest q . k, pages read); q [d], low and high [P, d].

    read(i) gives the keys [n, d] of page i.  Reads pages by falling bound until no other can hold a
    larger product; of equal products the first key.
    """
    q, low, high = q.double(), low.double(), high.double()
    bounds = torch.maximum(q * low, q * high).sum(-1)
    slack = 4 * q.shape[0] * torch.finfo(torch.float64).eps
    slack *= (q.abs() * torch.maximum(low.abs(), high.abs())).sum(-1).max().item()
    best, place, pages, size = -torch.inf, (0, 0), 0, 0
    for i in bounds.argsort(descending=True, stable=True).tolist():
        if bounds[i] < best - slack:
            break
        products = read(i).double() @ q
        pages += 1
        j = int(products.argmax())
        if products[j] > best or (products[j] == best and (i, j) < place):
            best, place = float(products[j]), (i, j)
        size = max(size, len(products))
    return place[0] * size + place[1], pages


def cost(tokens: int, head_dim: int, page: int, pages: int) -> Cost:
    """What `tokens` tokens cost: summaries of all pages, and the tokens of `pages` of them."""
    expect_whole(1, tokens=tokens, head_dim=head_dim, page=page, pages=pages)
    number = -(-tokens // page)
    last = tokens - (number - 1) * page  # of the newest page, which is always read
    read = min(number, pages) * page - page + last
    return Cost(2 * head_dim * (tokens + number), 2 * head_dim * (read + number))
