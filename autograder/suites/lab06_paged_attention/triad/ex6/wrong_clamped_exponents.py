"""No exponent below -20: a small weight of a huge value becomes a large one."""

import math

import torch

FAILS = ["test_absorb_in_any_cuts"]


def absorb(state, scores, values):
    m, t, a = state
    new = torch.maximum(m, scores.amax(1))
    old = torch.exp(m - new)
    p = torch.exp((scores - new[:, None]).clamp(min=-20))
    t = t * old + p.sum(1)
    a = a * old[:, None] + (p[:, :, None] * values).sum(1)
    return new, t, a


def paged_attention(q, k, v, table, length):
    heads, d = q.shape
    size, kv = k.shape[1], k.shape[2]
    q = q.float()
    state = torch.full((heads,), -math.inf), torch.zeros(heads), torch.zeros(heads, d)
    for i in range(blocks_for(length, size)):
        n = min(size, length - i * size)
        keys = k[table[i], :n].float().repeat_interleave(heads // kv, 1).transpose(0, 1)
        values = v[table[i], :n].float().repeat_interleave(heads // kv, 1).transpose(0, 1)
        scores = (keys * q[:, None]).sum(-1) / math.sqrt(d)
        state = absorb(state, scores, values)
    return state[2] / state[1][:, None]
