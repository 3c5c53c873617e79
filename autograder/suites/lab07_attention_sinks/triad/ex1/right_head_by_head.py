"""One head and one query after the other."""

import torch

from efflib.models.rotary import rotate


def attention_map(x, w_q, w_k, heads, theta):
    T, d = len(x), len(w_q) // heads
    group = heads // (len(w_k) // d)
    p = torch.zeros(heads, T, T)
    for h in range(heads):
        q = x.float() @ w_q[h * d : (h + 1) * d].float().T
        g = h // group
        k = x.float() @ w_k[g * d : (g + 1) * d].float().T
        q, k = (rotate(y[None, None], torch.arange(T), theta)[0, 0] for y in (q, k))
        for t in range(T):
            p[h, t, : t + 1] = torch.softmax(k[: t + 1] @ q[t] / d**0.5, dim=0)
    return p


def share(p, token, first):
    if token not in range(p.shape[-1]) or first not in range(p.shape[-2]):
        raise ValueError("not there")
    return torch.stack([head[first:, token].sum() / (len(head) - first) for head in p])


def even_share(queries, first):
    if not 0 <= first < queries:
        raise ValueError("no such query")
    keys = torch.arange(first + 1, queries + 1, dtype=torch.float64)
    return (1 / keys).mean().item()
