"""The even share is added up in float32."""

import math

import torch

from efflib.models.rotary import rotate


def attention_map(x, w_q, w_k, heads, theta):
    x, w_q, w_k = x.float(), w_q.float(), w_k.float()
    tokens, d = x.shape[0], w_q.shape[0] // heads
    places = torch.arange(tokens)
    q = (x @ w_q.T).view(tokens, heads, d).transpose(0, 1)[None]
    k = (x @ w_k.T).view(tokens, -1, d).transpose(0, 1)[None]
    q, k = rotate(q, places, theta), rotate(k, places, theta)
    k = k.repeat_interleave(heads // k.shape[1], dim=1)
    s = (q @ k.transpose(-1, -2))[0] / math.sqrt(d)
    hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    return s.masked_fill(hidden, -math.inf).softmax(-1)


def share(p, token, first):
    if not 0 <= token < p.shape[2]:
        raise ValueError(f"no column {token}")
    if not 0 <= first < p.shape[1]:
        raise ValueError(f"no query {first}")
    return p[:, first:, token].mean(-1)


def even_share(queries, first):
    if not 0 <= first < queries:
        raise ValueError("no such query")
    total = torch.zeros(())
    for t in range(first, queries):
        total += 1 / (t + 1)
    return (total / (queries - first)).item()
