"""einsum, heads in groups, a mask that is added."""

import math

import torch

from efflib.models.rotary import rotate


def attention_map(x, w_q, w_k, heads, theta):
    d = w_q.shape[0] // heads
    x, places = x.float(), torch.arange(x.shape[0])
    q = torch.einsum("td,hed->hte", x, w_q.float().unflatten(0, (heads, d)))
    k = torch.einsum("td,hed->hte", x, w_k.float().unflatten(0, (-1, d)))
    q, k = rotate(q[None], places, theta)[0], rotate(k[None], places, theta)[0]
    q = q.unflatten(0, (k.shape[0], -1))
    scores = torch.einsum("gnte,gse->gnts", q, k).flatten(0, 1) / d**0.5
    later = torch.full(scores.shape[1:], -math.inf).triu(1)
    return torch.softmax(scores + later, dim=-1)


def share(p, token, first):
    if min(token, first) < 0 or token >= p.size(2) or first >= p.size(1):
        raise ValueError("outside")
    return p.select(2, token).narrow(1, first, p.size(1) - first).mean(dim=1)


def even_share(queries, first):
    if not 0 <= first < queries:
        raise ValueError("no such query")
    total = 0.0
    for keys in range(queries, first, -1):
        total += 1 / keys
    return total / (queries - first)
