"""The help and the last hint, word for word."""

import math

import torch


def absorb(state, scores, values):
    m, t, a = state
    new_m = torch.maximum(m, scores.max(dim=-1).values)
    p = torch.exp(scores - new_m.unsqueeze(-1))
    factor = torch.exp(m - new_m)
    a = a * factor.unsqueeze(-1) + (p.unsqueeze(1) @ values).squeeze(1)
    return new_m, t * factor + p.sum(dim=-1), a


def paged_attention(q, k, v, table, length):
    H, d = q.shape
    size, group = k.shape[1], H // k.shape[2]
    state = (torch.full((H,), -math.inf), torch.zeros(H), torch.zeros(H, d))
    for i in range(math.ceil(length / size)):
        n = min(size, length - i * size)
        keys = k[table[i], :n].float().repeat_interleave(group, dim=1)
        values = v[table[i], :n].float().repeat_interleave(group, dim=1)
        scores = (q.float() * keys).sum(-1).T / math.sqrt(d)
        state = absorb(state, scores, values.transpose(0, 1))
    return state[2] / state[1][:, None]
