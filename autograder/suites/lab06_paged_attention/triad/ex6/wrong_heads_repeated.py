"""repeat: query heads 0 and 1 use key heads 0 and 1."""

import math

import torch

FAILS = ["test_equal_to_contiguous", "test_blocks_of_every_size", "test_bfloat16_and_views"]


def paged_attention(q, k, v, table, length):
    heads, d = q.shape
    size, group = k.shape[1], heads // k.shape[2]
    state = torch.full((heads,), -math.inf), torch.zeros(heads), torch.zeros(heads, d)
    for i in range(-(-length // size)):
        n = min(size, length - i * size)
        keys, values = (x[table[i], :n].float().repeat(1, group, 1).transpose(0, 1) for x in (k, v))
        scores = (keys @ q.float()[:, :, None]).squeeze(-1) / math.sqrt(d)
        state = absorb(state, scores.float(), values.float())
    return state[2] / state[1][:, None]
