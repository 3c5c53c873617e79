"""One head and one row at a time."""

import math

import torch


def absorb(state, scores, values):
    m, t, a = (part.clone() for part in state)
    for h in range(len(m)):
        for s, v in zip(scores[h], values[h], strict=True):
            larger = torch.maximum(m[h], s)
            t[h] = t[h] * torch.exp(m[h] - larger) + torch.exp(s - larger)
            a[h] = a[h] * torch.exp(m[h] - larger) + torch.exp(s - larger) * v
            m[h] = larger
    return m, t, a


def paged_attention(q, k, v, table, length):
    heads, d = q.shape
    group = heads // k.shape[2]
    o = torch.empty(heads, d)
    for h in range(heads):
        rows = [(table[p // k.shape[1]], p % k.shape[1]) for p in range(length)]
        keys = torch.stack([k[b, r, h // group] for b, r in rows]).float()
        values = torch.stack([v[b, r, h // group] for b, r in rows]).float()
        weights = (keys @ q[h].float() / math.sqrt(d)).softmax(0)
        o[h] = weights @ values
    return o
