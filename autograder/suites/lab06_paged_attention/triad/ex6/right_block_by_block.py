"""The whole row of scores of a block absorbed at once, heads in front."""

import math

import torch


def absorb(state, scores, values):
    m, t, a = state
    larger = torch.maximum(m, scores.amax(-1))
    p, keep = torch.exp(scores - larger[:, None]), torch.exp(m - larger)
    return larger, t * keep + p.sum(-1), a * keep[:, None] + (p[:, :, None] * values).sum(1)


def paged_attention(q, k, v, table, length):
    heads, d = q.shape
    size, group = k.shape[1], heads // k.shape[2]
    state = torch.full((heads,), -math.inf), torch.zeros(heads), torch.zeros(heads, d)
    for i in range(-(-length // size)):
        n = min(size, length - i * size)
        keys, values = (
            x[table[i], :n].float().repeat_interleave(group, dim=1).transpose(0, 1) for x in (k, v)
        )
        scores = (keys @ q.float()[:, :, None]).squeeze(-1) / math.sqrt(d)
        state = absorb(state, scores.float(), values.float())
    return state[2] / state[1][:, None]
