"""`view` on q, which only some strides allow."""

import math

import torch

FAILS = ["test_bfloat16_and_views"]


def absorb(state, scores, values):
    m, t, a = state
    new = torch.maximum(m, scores.amax(1))
    old = torch.exp(m - new)
    p = torch.exp(scores - new[:, None])
    t = t * old + p.sum(1)
    a = a * old[:, None] + (p[:, :, None] * values).sum(1)
    return new, t, a


def paged_attention(q, k, v, table, length):
    heads, d = q.shape
    size, kv = k.shape[1], k.shape[2]
    q = q.float().view(-1).view(heads, d)
    state = torch.full((heads,), -math.inf), torch.zeros(heads), torch.zeros(heads, d)
    for i in range(blocks_for(length, size)):
        n = min(size, length - i * size)
        keys = k[table[i], :n].float().repeat_interleave(heads // kv, 1).transpose(0, 1)
        values = v[table[i], :n].float().repeat_interleave(heads // kv, 1).transpose(0, 1)
        scores = (keys * q[:, None]).sum(-1) / math.sqrt(d)
        state = absorb(state, scores, values)
    return state[2] / state[1][:, None]
