"""What the help and the hints say, taken as they stand."""

import math

import torch

from efflib.models.rotary import rotate


def attention_map(x, w_q, w_k, heads, theta):
    T, d = x.shape[0], w_q.shape[0] // heads
    q = (x.float() @ w_q.float().T).view(1, T, heads, d).transpose(1, 2)
    k = (x.float() @ w_k.float().T).view(1, T, -1, d).transpose(1, 2)
    q, k = (rotate(y, torch.arange(T), theta) for y in (q, k))
    k = k.repeat_interleave(heads // k.shape[1], dim=1)
    scores = (q @ k.transpose(-1, -2))[0] / math.sqrt(d)
    seen = torch.ones(T, T).tril() > 0
    return scores.masked_fill(~seen, -math.inf).softmax(-1)


def share(p, token, first):
    if not (0 <= token < p.shape[2] and 0 <= first < p.shape[1]):
        raise ValueError(f"{token}, {first}")
    return p[:, first:, token].mean(-1)


def even_share(queries, first):
    if not 0 <= first < queries:
        raise ValueError("no such query")
    return math.fsum(1 / (t + 1) for t in range(first, queries)) / (queries - first)
